"""Rewards of judges that see a whole clip: an ordinal score at its end (RoboReward), the progress of shuffled frames (GVL)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar

import numpy as np
import pydantic

from robo_rl.errors import require_allowed
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judged_episodes import EpisodeJudge, Places, required, scores_of
from robo_rl.rewards.judging import Form, Question
from robo_rl.rewards.large_reward_models import SYSTEM
from robo_rl.rewards.pictures import Pictures, pictures_of
from robo_rl.types import Episode, Labels, RewardLabels


class OrdinalForm(Form):
    """How well the task was done."""

    score: Annotated[int, pydantic.Field(ge=1, le=5)]


@dataclass(frozen=True, kw_only=True)
class JudgeOrdinal(EpisodeJudge):
    """A score from 1 to 5 for the end of the episode, as 0 to 1 at its last step and 0 before (RoboReward)."""

    name: ClassVar[str] = "judge-ordinal"
    words: ClassVar[str] = (
        "The task of the robot: {instruction}\nThe pictures are a clip of the robot, in the order of time. Judge by the state "
        "in the last one alone.\n1: nothing of the task is done.\n2: hardly anything is done.\n3: some of it is done.\n"
        "4: nearly all is done, with a small flaw.\n5: the task is done."
    )

    frames: int = 8
    """Pictures of the clip, at even distances, the first and the last among them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(
            self, {"frames": (self.frames >= 2, "2 or more"), "mode": (self.mode == "level", "level: it is no curve")}
        )

    def places(self, count: int) -> Places:
        """Returns even distances; two at least, although they be the same."""
        return np.linspace(0, count - 1, min(self.frames, max(count, 2))).round().astype(np.intp)

    def scores_at(self, pictures: Pictures, places: Places, instruction: str) -> Labels:
        """Returns one score: that of the clip."""
        shown = [part for number, place in enumerate(places, 1) for part in (f"Picture {number}:", pictures[place])]
        question = Question((self.words.format(instruction=instruction), *shown), OrdinalForm, SYSTEM)
        content = self.asking.ask([question])[0].content
        return scores_of([(content["score"] - 1) / 4 if content else None])

    def label(self, episode: Episode) -> RewardLabels:
        """Returns 0 for each step but the last, whose value is missing where the answer is."""
        instruction = required(self.instruction or episode.instruction)
        pictures = pictures_of(episode.observations, self.camera)
        values, valid = np.zeros(len(episode), np.float32), np.ones(len(episode), np.bool_)
        if len(episode):
            score = self.scores_at(pictures, self.places(len(pictures)), instruction)
            values[-1], valid[-1] = score.values[0], score.valid[0]
        return Labels(values, valid).by(self.identity, hash_of(self.words.encode(), instruction.encode()))


class Frame(Form):
    """What one picture shows."""

    description: str
    percent: Annotated[float, pydantic.Field(ge=0, le=100)]


@dataclass(frozen=True, kw_only=True)
class JudgeOrder(EpisodeJudge):
    """Progress of pictures that are shown in a wrong order, so that a judge cannot just count upwards (GVL)."""

    name: ClassVar[str] = "judge-order"
    words: ClassVar[str] = (
        "The task of the robot: {instruction}\nThe first picture is from the start, where 0 percent of the task are done. The "
        "other ones are from the same episode, in an order that means nothing. Say of each in at most ten words what it shows, "
        "and how many percent of the task are done in it, from 0 to 100."
    )

    frames: int = 15
    """Pictures at even distances, the first and the last of the episode among them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"frames": (self.frames >= 2, "2 or more")})

    def places(self, count: int) -> Places:
        """Returns even distances, none twice."""
        return np.unique(np.linspace(0, count - 1, min(self.frames, count)).round().astype(np.intp))

    def scores_at(self, pictures: Pictures, places: Places, instruction: str) -> Labels:
        """Returns the progress in [0, 1] in the order of time: 0 for the first, which the judge is told, and its answers."""
        later = places[1:]
        chance = np.random.default_rng(int(hash_of(pictures[places].tobytes(), instruction.encode()), 16))
        order = chance.permutation(len(later))  # order[i]: which of the later ones is shown as number i
        shown = [part for number, one in enumerate(order, 1) for part in (f"frame_{number}:", pictures[later[one]])]
        words = self.words.format(instruction=instruction)
        question = Question((words, "Start, 0 percent:", pictures[0], *shown), order_form(len(later)), SYSTEM)
        content = self.asking.ask([question])[0].content
        percents: list[float | None] = [None] * len(later)
        for number, one in enumerate(order, 1):
            percents[one] = content[f"frame_{number}"]["percent"] / 100 if content else None
        return scores_of([0.0 if content else None, *percents])


@cache
def order_form(count: int) -> type[Form]:
    """Returns the form of an answer that names each of so many pictures exactly once."""
    frames: dict[str, Any] = {f"frame_{number}": (Frame, ...) for number in range(1, count + 1)}
    return pydantic.create_model("OrderForm", __base__=Form, **frames)
