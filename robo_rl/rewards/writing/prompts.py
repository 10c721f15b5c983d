"""Prompts that ask a language model for reward programs."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from robo_rl.rewards.chat.question import Question, prompt
from robo_rl.rewards.programs import geometry
from robo_rl.rewards.programs.expressions import MOST_EXPONENT
from robo_rl.rewards.programs.grammar import MOST_LINES, MOST_ROUNDS, MOST_TERMS
from robo_rl.rewards.programs.vocabulary import BUILTINS, CONSTANTS, GEOMETRY, MATH, METHODS, NUMPY

ROLE = (
    "You write reward functions for reinforcement learning in robotics. A policy that knows nothing learns from your function "
    "alone, by trial and error, so the function has to say at every step whether things get better."
)

FORM = """\
Answer with your reasoning in a few sentences, and then with exactly one fenced block of Python that holds one function:

```python
def reward(batch):
    near = ...
    effort = ...
    return near + effort, {"near": near, "effort": effort}
```

`batch["name"]` is a numpy array with N rows, one for each step; N changes from call to call. `total` and every term have the \
shape (N,). Let `total`, the first of what is returned, be the sum of the terms, each already multiplied by its weight. Take \
names of your own for the terms."""

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
    """Description of a task for the prompts that ask for a reward program."""

    sentence: str
    """The task that a reward is wanted for, in one sentence."""
    columns: str
    """Description of the columns that a program may read (EnvAbstraction.text)."""
    means: str
    """Description of the functions and syntax that a program may use."""
    max_steps: int | None = None
    """Most steps of an episode; None: no limit."""


@dataclass(frozen=True)
class Example:
    """Example for a prompt: another task, with a reward program that does well on it."""

    sentence: str
    program: str


@dataclass(frozen=True)
class Feedback:
    """Feedback of a person on the behaviour of a policy that was trained with a reward program."""

    program: str
    words: str


def initial_prompt(task: RewardTask, examples: Sequence[Example] = ()) -> Question:
    """Return the first prompt: zero-shot, or few-shot with examples of other tasks."""
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
    return prompt(words, purpose="write", system=ROLE)


def repair(asked: Question, answer: str, problem: str) -> Question:
    """Return a prompt that continues the conversation: it tells the model what is wrong with its answer."""
    words = (
        f"This program cannot be used:\n\n{problem}\n\n"
        "Find the cause, mend it, and answer in the same form with the whole program."
    )
    return asked.then(answer or "(no answer)", words, purpose="repair")


def after_feedback(asked: Question, rounds: Iterable[Feedback]) -> Question:
    """Return the prompt extended by all rounds: each a program and a person's feedback on its policy."""
    for each in rounds:
        words = (
            "A policy was trained with this program. A person watched it and says:\n\n"
            f"{each.words.strip()}\n\n"
            "Think about which part of the task the program leaves out, or pays for wrongly, and answer in the same form with "
            "the whole program, improved."
        )
        asked = asked.then(fenced(each.program), words, purpose="feedback")
    return asked


def fenced(source: str) -> str:
    """Return a program's source as a fenced code block of Markdown."""
    return f"```python\n{source.strip()}\n```"


def at(asked: Question, temperature: float) -> Question:
    """Return the prompt with another sampling temperature."""
    return replace(asked, temperature=temperature)


def _use(task: RewardTask) -> str:
    limit = f"An episode lasts at most {task.max_steps} steps" if task.max_steps else "An episode has no fixed length"
    return (
        f"{limit}, and may end as soon as the task is done; nobody tells the function. A reward that is positive at every step "
        "then pays for not finishing, and one that is negative at every step pays for ending soon, in whatever way."
    )


def _example(example: Example) -> str:
    return f"{example.sentence}\n\n{fenced(example.program)}"


WORD = re.compile(r"[a-z]+")


def nearest(sentence: str, known: Sequence[Example], count: int = 3) -> list[Example]:
    """Return the examples with the most similar tasks, most similar last, since models attend most to the end.

    Similarity is the cosine of word counts; a word weighs less the more tasks contain it. Text2Reward compares embeddings of a
    language model, which a few dozen sentences do not need. A task with the same words is left out, since its program would be
    the answer.
    """
    others = [example for example in known if _words(example.sentence) != _words(sentence)]
    if not others:
        return []
    vectors = _vectors([sentence, *(example.sentence for example in others)])
    likeness = vectors[1:] @ vectors[0]
    order = np.argsort(-likeness, kind="stable")[:count]
    return [others[place] for place in order[::-1]]


def _vectors(sentences: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return a row of length 1 for each sentence."""
    counts = [Counter(_words(sentence)) for sentence in sentences]
    spread = Counter(chain.from_iterable(counts))
    weights = {word: np.log((1 + len(counts)) / (1 + number)) + 1 for word, number in spread.items()}
    rows = np.array([[count[word] * weight for word, weight in weights.items()] for count in counts], np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def _words(sentence: str) -> list[str]:
    return WORD.findall(sentence.lower())


def means() -> str:
    """Return the section of a prompt that lists the functions, constants and syntax that a reward program may use."""
    turns = [f"- {name}{_signature(name)}: {_sentence(name)}" for name in GEOMETRY]
    return "\n".join(
        [
            "`np` and `math` are there already; nothing can be imported. Everything that is not listed is refused.",
            f"np: {', '.join(NUMPY)}",
            f"math, for single numbers: {', '.join(MATH)}",
            f"Python's own, for single numbers: {', '.join(BUILTINS)}",
            f"constants: {', '.join(CONSTANTS)}",
            f"methods of arrays: {', '.join(METHODS)}",
            "quaternions (w, x, y, z), points and point clouds, for all rows at once:",
            *turns,
            "Syntax: assignments to plain names, arithmetic, comparisons, reading parts of arrays, `&` `|` `~` on conditions. "
            "No `if`, `while`, comprehension, class, other function or store into a part of an array. A loop is "
            f"`for i in range(n)` with n written out, at most {MOST_ROUNDS}; an exponent is a number written out, at most "
            f"{MOST_EXPONENT}. At most {MOST_LINES} lines and {MOST_TERMS} terms.",
        ]
    )


def _signature(name: str) -> str:
    return f"({', '.join(inspect.signature(getattr(geometry, name)).parameters)})"


def _sentence(name: str) -> str:
    """Return what a function returns, from the summary of its docstring."""
    return (inspect.getdoc(getattr(geometry, name)) or "").splitlines()[0].removeprefix("Return ")
