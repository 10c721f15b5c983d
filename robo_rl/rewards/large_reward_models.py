"""Rewards after Large Reward Models (LRM): progress, completion, which of two moments is further, and the mean of all three.

A general model takes the place of LRM's fine-tuned heads; docs/judges.md says what else differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import pydantic

from robo_rl.errors import require_allowed
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judged_episodes import EpisodeJudge, Places, required, scores_of
from robo_rl.rewards.judging import Form, Picture, Question
from robo_rl.rewards.pictures import Pictures
from robo_rl.types import Labels

SYSTEM = "You judge how well a robot does a task, by what can be seen in pictures and by nothing else."
BINS = [number / 10 for number in range(11)]


class Moment(NamedTuple):
    """What can be shown of a moment of an episode."""

    first: Picture
    before: Picture | None
    """At the moment that was asked about before; None at the first."""
    now: Picture


class Head(Protocol):
    """One way to ask about a moment."""

    words: str

    def question(self, moment: Moment, instruction: str) -> Question | None:
        """Returns what to ask; None where nothing needs to be asked, or can be."""

    def value(self, moment: Moment, content: dict[str, Any] | None) -> float | None:
        """Returns a value in [0, 1]; None for a missing one. content: of the answer, None where there is none."""


def _one_of_the_bins(value: float) -> float:
    if min(abs(value - each) for each in BINS) > 1e-6:
        raise ValueError(f"must be one of {BINS}")
    return value


class ProgressForm(Form):
    """Which tenth of the task is done."""

    completion_progress: Annotated[
        float, pydantic.Field(json_schema_extra={"enum": BINS}), pydantic.AfterValidator(_one_of_the_bins)
    ]


class Progress:
    """How much of the task is done, in tenths."""

    words = (
        "The task of the robot: {instruction}\nThe first picture is from the start of the episode, the second one from now. "
        "How much of the task is done now? 0.0 is where it started, 1.0 is done; choose the nearest tenth."
    )

    def question(self, moment: Moment, instruction: str) -> Question:
        """Returns a question with the first picture and this one."""
        words = self.words.format(instruction=instruction)
        return Question((words, "Start:", moment.first, "Now:", moment.now), ProgressForm, SYSTEM)

    def value(self, moment: Moment, content: dict[str, Any] | None) -> float | None:
        """Returns the tenth."""
        return None if content is None else float(content["completion_progress"])


class CompletionForm(Form):
    """Whether the task is done."""

    task_completed: Literal["yes", "no"]


class Completion:
    """Whether the task is done."""

    words = "The task of the robot: {instruction}\nThe picture is from now. Is the task done? Say yes only where all of it is."

    def question(self, moment: Moment, instruction: str) -> Question:
        """Returns a question with this picture."""
        return Question((self.words.format(instruction=instruction), "Now:", moment.now), CompletionForm, SYSTEM)

    def value(self, moment: Moment, content: dict[str, Any] | None) -> float | None:
        """Returns 1 or 0."""
        return None if content is None else float(content["task_completed"] == "yes")


class ContrastForm(Form):
    """Which of two pictures is closer to the goal."""

    analysis: str
    more_complete_image: Literal["ImageA", "ImageB"]


class Contrast:
    """Whether this moment is further than the one before; which of them is image A follows from the pictures."""

    words = (
        "The task of the robot: {instruction}\nTwo pictures are from different moments, in an order that means nothing. "
        "Compare them step by step, shortly: what is where, and what is left to do? Then say in which more of the task is done."
    )

    def question(self, moment: Moment, instruction: str) -> Question | None:
        """Returns a question with both pictures; None at the first moment, and where the pictures are the same."""
        if moment.before is None or np.array_equal(moment.before, moment.now):
            return None
        pair = [moment.before, moment.now]
        one, other = pair[::-1] if _is_swapped(moment) else pair
        words = self.words.format(instruction=instruction)
        return Question((words, "ImageA:", one, "ImageB:", other), ContrastForm, SYSTEM)

    def value(self, moment: Moment, content: dict[str, Any] | None) -> float | None:
        """Returns 1 where this moment is further, 0 where it is not, 0.5 for two equal pictures."""
        if moment.before is None:
            return None
        if np.array_equal(moment.before, moment.now):
            return 0.5
        return None if content is None else float((content["more_complete_image"] == "ImageA") == _is_swapped(moment))


def _is_swapped(moment: Moment) -> bool:
    pictures = [np.ascontiguousarray(picture).tobytes() for picture in (moment.before, moment.now)]
    return int(hash_of(*pictures), 16) % 2 == 1


@dataclass(frozen=True, kw_only=True)
class LargeRewardModel(EpisodeJudge):
    """The mean of the values of its heads, every few steps."""

    heads: ClassVar[Sequence[Head]]

    every: int = 10
    """[steps] between two questions; the last picture of an episode is asked about in any case."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"every": (self.every >= 1, "1 or more")})

    def places(self, count: int) -> Places:
        """Returns every k-th picture from the first on, and the last."""
        return np.unique([*range(0, count, self.every), count - 1])

    def scores_at(self, pictures: Pictures, places: Places, instruction: str) -> Labels:
        """Returns the mean of the heads where all of them have a value."""
        shown = pictures[places]
        moments = [Moment(pictures[0], before, now) for before, now in zip([None, *shown], shown, strict=False)]
        return self._scores(moments, instruction)

    def _scores(self, moments: Sequence[Moment], instruction: str) -> Labels:
        pairs = [(moment, head) for moment in moments for head in self.heads]
        questions = [head.question(moment, instruction) for moment, head in pairs]
        answers = iter(self.asking.ask([question for question in questions if question is not None]))
        contents = [dict(next(answers).content) if question is not None else {} for question in questions]
        values = [head.value(moment, content or None) for (moment, head), content in zip(pairs, contents, strict=True)]
        count = len(self.heads)
        groups = [values[start : start + count] for start in range(0, len(values), count)]
        return scores_of([_mean(group) for group in groups])


class _SinglePictures(LargeRewardModel):
    """Judges a picture by itself and the first one, so that it can be asked online."""

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Returns one score for each picture."""
        moments = [Moment(first, None, now) for first, now in zip(firsts, pictures, strict=True)]
        return self._scores(moments, required(self.instruction or instruction))


@dataclass(frozen=True, kw_only=True)
class JudgeProgress(_SinglePictures):
    """How much of the task is done, in tenths, as a judge sees it (LRM)."""

    name: ClassVar[str] = "judge-progress"
    heads: ClassVar[Sequence[Head]] = (Progress(),)
    words: ClassVar[str] = Progress.words


@dataclass(frozen=True, kw_only=True)
class JudgeCompletion(_SinglePictures):
    """1 where a judge sees the task done, else 0 (LRM)."""

    name: ClassVar[str] = "judge-completion"
    heads: ClassVar[Sequence[Head]] = (Completion(),)
    words: ClassVar[str] = Completion.words


@dataclass(frozen=True, kw_only=True)
class JudgeContrast(LargeRewardModel):
    """1 where a judge sees more of the task done than a few steps before, 0 where less (LRM, temporal contrastive)."""

    name: ClassVar[str] = "judge-contrast"
    heads: ClassVar[Sequence[Head]] = (Contrast(),)
    words: ClassVar[str] = Contrast.words


@dataclass(frozen=True, kw_only=True)
class JudgeTri(LargeRewardModel):
    """The mean of contrast, progress and completion, each in [0, 1] (LRM)."""

    name: ClassVar[str] = "judge-tri"
    heads: ClassVar[Sequence[Head]] = (Contrast(), Progress(), Completion())
    words: ClassVar[str] = Contrast.words + Progress.words + Completion.words


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(values) if len(known) == len(values) else None
