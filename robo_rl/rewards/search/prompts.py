"""The words in which a language model is asked for reward programs. Six sections: role, task, columns, means, form, hints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from robo_rl.rewards.language.conversation import Message, Prompt
from robo_rl.rewards.programs.program import RewardProgram

ROLE = (
    "You write reward functions for reinforcement learning in robotics. A policy that knows nothing learns from your function "
    "alone, by trial and error, so the function has to say at every step whether things get better."
)

FORM = """\
Answer with your reasoning in a few sentences, and then with exactly one fenced block of Python that holds one function:

```python
def reward(batch):
    ...
    return total, {"name of a term": term, "name of another term": other_term}
```

`batch["name"]` is a numpy array with N rows, one for each step; N changes from call to call. `total` and every term have the \
shape (N,). Let `total` be the sum of the terms, each already multiplied by its weight."""

HINTS = """\
- Think first of the stages that lead to the goal, then of a quantity in the columns that says how far each stage is.
- Usual parts: distance of the hand to the object, distance of the object to its goal, a bonus where the goal is reached, a \
small cost of large actions.
- Bring every term to about -1 to 1. Where a term goes through an exponential or tanh, give its scale a name; a scale that \
does not fit the range of the distance leaves the term flat.
- Work on whole columns: np.where in the place of `if`, axis=1 for the norm of a vector in each row.
- Use only the columns listed above, respect their shapes and units, and invent none.
- Each row is judged by itself: there is no memory from call to call and no randomness.
- Say in a comment what each term is for."""


@dataclass(frozen=True)
class RewardTask:
    """What a reward is wanted for, as prompts tell it."""

    sentence: str
    """The task in one sentence."""
    columns: str
    """Description of what a program may read (EnvAbstraction.text)."""
    means: str
    """Description of what a program may call."""
    max_steps: int | None = None
    """After which an episode ends; None where there is no limit."""


@dataclass(frozen=True)
class Example:
    """Another task and a program that does well on it."""

    sentence: str
    program: str


@dataclass(frozen=True)
class Feedback:
    """What a person says of a policy that was trained with a program."""

    program: str
    words: str


def opening(task: RewardTask, examples: Sequence[Example] = ()) -> Prompt:
    """Returns the first prompt: zero-shot, or few-shot with examples of other tasks."""
    sections = [
        ("Task", task.sentence),
        ("What the function receives", task.columns),
        ("How it is used", _use(task)),
        ("What it may call", task.means),
        *(("A program for another task", _example(example)) for example in examples),
        ("Form of the answer", FORM),
        ("Hints", HINTS),
    ]
    words = "\n\n".join(f"## {title}\n{text}" for title, text in sections)
    return Prompt([Message("system", ROLE), Message("user", words)], "write")


def repair(asked: Prompt, answer: str, problem: str) -> Prompt:
    """Returns the prompt that sends back what is wrong with an answer to another."""
    words = (
        f"This program cannot be used:\n\n{problem}\n\n"
        "Find the cause, mend it, and answer in the same form with the whole program."
    )
    return asked.then(answer or "(no answer)", words, purpose="repair")


def after_feedback(asked: Prompt, rounds: Iterable[Feedback]) -> Prompt:
    """Returns the prompt that goes through all rounds so far: program, what a person says of its policy, and so on."""
    for each in rounds:
        words = (
            "A policy was trained with this program. A person watched it and says:\n\n"
            f"{each.words.strip()}\n\n"
            "Think about which part of the task the program leaves out, or pays for wrongly, and answer in the same form with "
            "the whole program, improved."
        )
        asked = asked.then(fenced(each.program), words, purpose="feedback")
    return asked


TIPS = """\
- Where success stays near zero, rewrite the whole function.
- A term that hardly changes cannot be learnt from: give it another scale, write it anew, or leave it out.
- A term that is much larger than the others hides them: scale it down.
- A term that rises while success does not is paid for something else than the task."""


def improve(asked: Prompt, best: RewardProgram, reflection: str) -> Prompt:
    """Returns Eureka's next prompt: the best program so far and how its training went, the task's success included."""
    words = (
        "Policies were trained with several programs, and this one served best. While its policy learnt, the mean of each term "
        f"per step, and the share of episodes that end in success, went like this from first to last:\n\n{reflection}\n\n"
        f"Write a better program. Look at each term:\n{TIPS}\n\nAnswer in the same form."
    )
    return asked.then(fenced(best.source), words, purpose="improve")


def all_failed(asked: Prompt, answer: str, failures: int, programs: int, problem: str, share: int) -> Prompt:
    """Returns the prompt after a round without one usable program: the commonest of its errors, and a reply that had it."""
    words = (
        f"None of {programs} programs could be used, this one among them. The commonest error ({share} of {failures}) "
        f"was:\n\n{problem}\n\nWrite a program that avoids it, and answer in the same form."
    )
    return asked.then(answer or "(no answer)", words, purpose="failed")


@dataclass(frozen=True)
class Judged:
    """A program as ICPL shows it: without any measure of success."""

    source: str
    traces: str


PREFERENCE_TIPS = """\
- The first program is the good example, and matters most: build on what it does.
- The second one is the bad example: find out what it does that the first does not, and avoid that.
- A term whose values hardly change needs another scale, another form, or no place in the function.
- A term that is much larger than the others hides them."""


def prefer(asked: Prompt, good: Judged, bad: Judged | None, history: Sequence[str]) -> Prompt:
    """Returns ICPL's next prompt: a good and a bad example with the course of their terms, and how good programs changed."""
    parts = [
        "Policies were trained with several programs, and somebody who watched them liked that of the program above best. Its "
        f"terms, mean per step from the first to the last part of training:\n\n{good.traces}"
    ]
    if bad is not None:
        parts += [f"This is the program whose policy was liked least:\n\n{fenced(bad.source)}\n\nIts terms:\n\n{bad.traces}"]
    if history:
        parts += ["How the good programs changed, round by round:\n\n" + "\n\n".join(history)]
    parts += [f"Write a program whose policy will be liked better.\n{PREFERENCE_TIPS}\n\nAnswer in the same form."]
    return asked.then(fenced(good.source), "\n\n".join(parts), purpose="prefer")


def difference(before: RewardProgram, after: RewardProgram) -> Prompt:
    """Returns the prompt that asks what has changed from one program to the next."""
    system = "You compare two reward functions for the same task and tell how they differ, precisely and in a few sentences."
    words = f"The first:\n\n{fenced(before.source)}\n\nThe second:\n\n{fenced(after.source)}\n\nWhat has changed?"
    return Prompt([Message("system", system), Message("user", words)], "difference", temperature=0.0)


def fenced(source: str) -> str:
    """Returns a program as a fenced block."""
    return f"```python\n{source.strip()}\n```"


def at(prompt: Prompt, temperature: float) -> Prompt:
    """Returns the prompt with another temperature of sampling."""
    return replace(prompt, temperature=temperature)


def _use(task: RewardTask) -> str:
    limit = f"An episode lasts at most {task.max_steps} steps" if task.max_steps else "An episode has no fixed length"
    return (
        f"{limit}, and may end as soon as the task is done; nobody tells the function. A reward that is positive at every step "
        "then pays for not finishing, and one that is negative at every step pays for ending soon, in whatever way."
    )


def _example(example: Example) -> str:
    return f"{example.sentence}\n\n{fenced(example.program)}"
