"""The rater `judge`: a vision-language model compares the last pictures of two segments in two stages (RL-VLM-F)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.chat.client import SILENT
from robo_rl.rewards.chat.question import Answer, Form, Picture, Question
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.picture_reward import pictures_of
from robo_rl.rewards.judges.heads import SYSTEM, worded
from robo_rl.rewards.judges.rewards import WithJudge, required
from robo_rl.rewards.preferences.raters import Preference, Segment
from robo_rl.settings import plain


class Choice(Form):
    """Form of an answer: which of two pictures is closer to the goal."""

    better: Literal["image 1", "image 2", "neither"]


LOOK = (
    "The task of the robot: <task>{instruction}</task>\n"
    "What does image 1 show, and what image 2? Is there a difference between them that "
    "matters for the task, and in which of them is more of it done? Answer in a few sentences."
)
CHOOSE = (
    "The task of the robot: <task>{instruction}</task>"
    '\nSomebody looked at two pictures and said:\n"""\n{analysis}\n"""\nIn which of them '
    'is more of the task done? Choose "neither" where there is no difference or none can be told.'
)


class ShownPair(NamedTuple):
    """How two pictures of a pair are shown to the judge: number of the pair, and their order."""

    pair: int
    """Number of the pair in the arguments of `compare_all`."""
    is_swapped: bool
    """True if the picture of the second segment is shown first."""
    one: Picture
    other: Picture
    instruction: str


@dataclass(frozen=True, kw_only=True)
class JudgeRater(WithJudge):
    """Rater that asks a vision-language model to describe the last pictures of two segments, then to decide (RL-VLM-F)."""

    name: ClassVar[str] = "judge"
    words: ClassVar[str] = LOOK + CHOOSE
    kind: ClassVar[Literal["model"]] = "model"

    camera: str = "front"
    """Camera of the pictures: the observation entry camera_NAME, or the full name of an entry."""
    instruction: str = ""
    """Task in words; empty for the instruction of the episodes."""
    both_orders: bool = True
    """True to ask with each picture first; if the answers differ, the pair is equal. False to ask once, in an order that
    follows from the pictures, at half the cost."""
    together: int = 16
    """Pairs per call of the judge, 1 or more."""

    def __post_init__(self) -> None:
        require_allowed(self, {"together": (self.together >= 1, "1 or more")})
        self.asking  # noqa: B018 - wrong settings of the judge are found before anything is read

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of judge, prompts and settings."""
        return self.identity_with({name: value for name, value in plain(self).items() if name != "together"})

    def compare(self, first: Segment, second: Segment) -> Preference:
        """Compare the last pictures of two segments: 0 if the first is better, 1 if the second, 0.5 if equal.

        Returns "skip" if the judge sees no difference or does not answer.
        """
        found = self.compare_all([(first, second)])[0]
        return "skip" if found is None else found

    def compare_all(self, pairs: Sequence[tuple[Segment, Segment]]) -> list[Preference | None]:
        """Return the preference for each pair; None if the judge could not be reached for it.

        Raises:
            InvalidSetting: The two episodes of a pair have different instructions.
        """
        shown = [each for number, pair in enumerate(pairs) for each in self._shown(number, *pair)]
        choices: list[list[str | None]] = [[] for _ in pairs]
        for each, choice in zip(shown, self._choices(shown), strict=True):
            self._tally["first" if choice == "image 1" else "second" if choice == "image 2" else "undecided"] += 1
            choices[each.pair].append(TURNED.get(choice, choice) if each.is_swapped and choice else choice)
        return [self._decided(found) for found in choices]

    def report(self) -> str:
        """Return text on the questions asked, their cost, and the influence of the pictures' order on the answers."""
        decided, twice = self._tally["first"] + self._tally["second"], self._tally["agree"] + self._tally["differ"]
        first = (
            f"image 1 was better in {self._tally['first'] / decided:.1%} of {decided} answers"
            if decided
            else "nothing was decided"
        )
        same = f"; {self._tally['agree'] / twice:.1%} of {twice} pairs had one answer in both orders" if twice else ""
        return f"{self.asking.report()}\norder of the pictures: {first} (without bias 50%){same}"

    def _shown(self, number: int, first: Segment, second: Segment) -> list[ShownPair]:
        """Return a pair in each order in which it is shown; empty if its two pictures are equal."""
        one, other = (pictures_of(part.episode.observations, self.camera)[part.stop] for part in (first, second))
        if np.array_equal(one, other):
            return []
        instructions = {self.instruction or part.episode.instruction for part in (first, second)}
        if len(instructions) > 1:
            raise InvalidSetting(
                "Two episodes with different tasks cannot be compared.",
                got=" and ".join(map(repr, instructions)),
                fix="compare episodes of one task (robo-rl data filter), or name one: --rater.settings.instruction ...",
            )
        instruction = required(instructions.pop())
        swapped = int(hash_of(one.tobytes(), other.tobytes()), 16) % 2 == 1
        orders = (False, True) if self.both_orders else (swapped,)
        return [ShownPair(number, turn, *((other, one) if turn else (one, other)), instruction) for turn in orders]

    def _choices(self, shown: Sequence[ShownPair]) -> list[str | None]:
        """Return the choice for each shown pair, "" without an answer, None if the judge could not be reached."""
        looks = [
            Question((worded(LOOK, each.instruction), "Image 1:", each.one, "Image 2:", each.other), None, SYSTEM)
            for each in shown
        ]
        seen = self.asking.ask(looks)
        described = [number for number, reply in enumerate(seen) if reply.status == "ok"]
        choosing = [
            Question((worded(CHOOSE, shown[number].instruction, analysis=seen[number].text),), Choice, SYSTEM)
            for number in described
        ]
        replies: dict[int, Answer] = dict(zip(described, self.asking.ask(choosing), strict=True))
        last = [replies.get(number, reply) for number, reply in enumerate(seen)]
        return [None if reply.status in SILENT else reply.content.get("better", "") for reply in last]

    def _decided(self, choices: Sequence[str | None]) -> Preference | None:
        """Return the preference that follows from one or two answers; None if an answer is missing."""
        if None in choices:
            return None
        if not choices or "" in choices:
            return "skip"
        if len(choices) > 1:
            self._tally["agree" if len({*choices}) == 1 else "differ"] += 1
        if len({*choices}) > 1:
            return 0.5
        return {"image 1": 0.0, "image 2": 1.0}.get(choices[0] or "", "skip")

    @cached_property
    def _tally(self) -> Counter[str]:
        return Counter()


TURNED = {"image 1": "image 2", "image 2": "image 1"}
"""Choice of a judge to whom the pictures were shown in swapped order -> the choice that it means."""
