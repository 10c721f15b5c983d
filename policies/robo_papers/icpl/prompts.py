"""Prompts that follow a round: how training went (Eureka), what was liked (ICPL), and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robo_papers.icpl.candidates import Outcome, TrainedCandidate
from robo_rl.rewards.chat.question import Question, prompt
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.writing.prompts import fenced

TIPS = """\
- Where success stays near zero, rewrite the whole function.
- A term that hardly changes cannot be learnt from: give it another scale, write it anew, or leave it out.
- A term that is much larger than the others hides them: scale it down.
- A term that rises while success does not is paid for something else than the task."""


def improve(asked: Question, best: RewardProgram, reflection: str) -> Question:
    """Return Eureka's next prompt: the best program so far and how its training went, the task's success included."""
    words = (
        "Policies were trained with several programs, and this one served best. While its policy learnt, the mean of each term "
        f"per step, and the share of episodes that end in success, went like this from first to last:\n\n{reflection}\n\n"
        f"Write a better program. Look at each term:\n{TIPS}\n\nAnswer in the same form."
    )
    return asked.then(fenced(best.source), words, purpose="improve")


def all_failed(asked: Question, answer: str, failures: int, programs: int, problem: str, share: int) -> Question:
    """Return the prompt after a round without one usable program: the commonest of its errors, and a reply that had it."""
    words = (
        f"None of {programs} programs could be used, this one among them. The commonest error ({share} of {failures}) "
        f"was:\n\n{problem}\n\nWrite a program that avoids it, and answer in the same form."
    )
    return asked.then(answer or "(no answer)", words, purpose="failed")


PREFERENCE_TIPS = """\
- The first program is the good example, and matters most: build on what it does.
- The second one is the bad example: find out what it does that the first does not, and avoid that.
- A term whose values hardly change needs another scale, another form, or no place in the function.
- A term that is much larger than the others hides them."""


def prefer(asked: Question, good: TrainedCandidate, bad: TrainedCandidate | None, history: Sequence[str]) -> Question:
    """Return ICPL's next prompt: a good and a bad example with the course of their terms, and how good programs changed."""
    parts = [
        "Policies were trained with several programs, and somebody who watched them liked that of the program above best. Its "
        f"terms, mean per step from the first to the last part of training:\n\n{traces_of(good)}"
    ]
    if bad is not None:
        parts += [
            f"This is the program whose policy was liked least:\n\n{fenced(source_of(bad))}\n\nIts terms:\n\n{traces_of(bad)}"
        ]
    if history:
        parts += ["How the good programs changed, round by round:\n\n" + "\n\n".join(history)]
    parts += [f"Write a program whose policy will be liked better.\n{PREFERENCE_TIPS}\n\nAnswer in the same form."]
    return asked.then(fenced(source_of(good)), "\n\n".join(parts), purpose="prefer")


def difference(before: RewardProgram, after: RewardProgram) -> Question:
    """Return the question to a language model how two programs differ."""
    system = "You compare two reward functions for the same task and tell how they differ, precisely and in a few sentences."
    words = f"The first:\n\n{fenced(before.source)}\n\nThe second:\n\n{fenced(after.source)}\n\nWhat has changed?"
    return prompt(words, purpose="difference", system=system, temperature=0.0)


SHOWN = 10
"""Number of values of each quantity that a prompt shows, evenly spaced over training (Eureka)."""
SUCCESS = "success"


def trace(values: Sequence[float]) -> str:
    """Describe a series of numbers as text: up to ten evenly spaced values, and the extremes and mean of all."""
    if not values:
        return "no value"
    every = np.asarray(values, np.float64)
    places = np.unique(np.linspace(0, len(every) - 1, min(SHOWN, len(every))).round().astype(int))
    course = ", ".join(f"{value:.3g}" for value in every[places])
    return f"{course}; max {every.max():.3g}, mean {every.mean():.3g}, min {every.min():.3g}"


def traces(terms: Mapping[str, Sequence[float]]) -> str:
    """Describe the course of each term of a program as a line of text, the total last."""
    names = sorted(terms, key=lambda name: (name == "total", name))
    return "\n".join(f"{name}: {trace(terms[name])}" for name in names) or "nothing was logged"


def traces_of(candidate: TrainedCandidate) -> str:
    """Return the lines of a candidate that was trained: its terms, and no measure of success."""
    assert candidate.outcome is not None, f"candidate {candidate.name} was not trained"
    return traces(candidate.outcome.terms)


def source_of(candidate: TrainedCandidate) -> str:
    """Return the source of a candidate that is a program."""
    assert candidate.program is not None, f"candidate {candidate.name} is not a program"
    return candidate.program.source


def reflection(outcome: Outcome) -> str:
    """Return the lines of an outcome: each term per step, the total, and the share of episodes that end in success."""
    judged = "unknown" if outcome.score is None else f"{outcome.score:.3g}"
    course = trace(outcome.successes)
    return f"{traces(outcome.terms)}\n{SUCCESS}: {course}\n{SUCCESS} of the final policy in new situations: {judged}"
