"""Rewards from answers of a judge: LRM's heads every few steps, the end of a clip (RoboReward), shuffled frames (GVL).

A judge scores some moments of an episode, and a score holds until the next one. A question without an answer gives a missing
label. A general model replaces LRM's fine-tuned heads; docs/rewards/judges.md lists the other differences.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pydantic
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.models import chat_model
from robo_rl.rewards.chat.question import Answer, Form, Picture, Question
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.picture_reward import PictureReward, Pictures, pictures_of
from robo_rl.rewards.judges.heads import SYSTEM, CompletionHead, ContrastHead, Head, Moment, ProgressHead, worded
from robo_rl.types import Episode, Labels, Metrics, RewardLabels

Places = npt.NDArray[np.intp]
"""Numbers of pictures of an episode, in rising order, beginning with 0."""


class Inquiry(NamedTuple):
    """Questions about one episode, and the function that computes labels from the answers.

    It holds only the pictures that are shown.
    """

    questions: Sequence[Question]
    labels: Callable[[Sequence[Answer]], Labels]
    """Returns the labels for the answers, which are in the order of the questions."""


@dataclass(frozen=True, kw_only=True)
class WithJudge:
    """Base class of rewards and raters that ask a judge, a model that answers questions: settings, questions and their cost."""

    name: ClassVar[str]
    """Name of the component in recipes and commands."""
    keeps_answers: ClassVar[bool] = True
    """True because the judge's answers are stored, so that a cache of labels would store them twice."""
    words: ClassVar[str]
    """Prompt of the judge; another prompt makes another reward."""

    judge: str = "endpoint"
    """Name of the judge: "endpoint" for any chat-completions server, "chance" for random answers; see also judge_settings."""
    judge_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the judge, such as {model: gpt-4o-2024-11-20, base_url: "https://api.openai.com/v1", key_variable: KEY}."""

    @cached_property
    def asking(self) -> ModelClient:
        """Client through which the judge is asked."""
        return ModelClient(chat_model(self.judge, self.judge_settings))

    def ask_by(self, asking: ModelClient) -> None:
        """Use another client, such as one whose store of answers is shared."""
        vars(self)["asking"] = asking  # the property's own place

    def identity_with(self, settings: Mapping[str, object]) -> tuple[str, str]:
        """Return an identity: a name that contains the judge's, and a hash of judge, prompt and the given settings."""
        own = {name: value for name, value in settings.items() if name not in ("judge", "judge_settings")}
        judge, judge_hash = self.asking.identity
        facts = json.dumps([judge_hash, self.words, own], sort_keys=True)
        return f"{self.name} by {judge}", hash_of(facts.encode())

    def spent(self) -> Metrics:
        """Return metrics: the numbers of questions and of tokens, and the cost, in the unit of the judge's price settings.

        With a log they count the whole run: `llm/replies`, `llm/paid`, `llm/tokens`, `llm/cost`. Without a log they count this
        process: `judge/asked`, `judge/kept` (answered from the store), `judge/tokens`, `judge/cost`.
        """
        return self.asking.spent()

    def report(self) -> str:
        """Return lines of text with the questions asked, their cost, and the missing answers by reason."""
        return self.asking.report()


@dataclass(frozen=True, kw_only=True)
class EpisodeJudge(WithJudge, PictureReward):
    """Base class of rewards from scores that a judge gives to some moments of an episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asking  # noqa: B018 - wrong settings of the judge are found before any episode is read

    @property
    @override
    def identity(self) -> tuple[str, str]:
        return self.identity_with(self.settings())

    @abstractmethod
    def places(self, count: int) -> Places:
        """Return the numbers of the pictures that are shown to the judge, of an episode with `count` pictures."""

    @abstractmethod
    def inquiry(self, pictures: Pictures, places: Places, instruction: str) -> Inquiry:
        """Make the questions from whose answers the scores at some pictures are computed.

        Args:
            pictures: All pictures (T+1, H, W, 3) of the episode.
            places: Numbers of the pictures to score.
            instruction: Task in words.
        """

    def scores_at(self, pictures: Pictures, places: Places, instruction: str) -> Labels:
        """Ask the judge and return one score for each picture in `places`.

        Args:
            pictures: All pictures (T+1, H, W, 3) of the episode.
            places: Numbers of the pictures to score.
            instruction: Task in words.
        """
        asked = self.inquiry(pictures, places, instruction)
        return asked.labels(self.asking.ask(asked.questions))

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Raise InvalidSetting, because the judge needs the whole episode.

        A subclass overrides this if it can judge a picture from that picture and the first one.
        """
        raise InvalidSetting(f"{self.name} judges whole episodes, not single pictures.", fix="robo-rl label; or judge-progress")

    def label(self, episode: Episode) -> RewardLabels:
        """Return the rewards of an episode; the score of a moment, also a missing one, holds until the next question."""
        return next(self.label_all([episode]))

    @override
    def label_all(self, episodes: Iterable[Episode]) -> Iterator[RewardLabels]:
        """Yield the rewards of each episode; if episodes have few questions, those of several episodes are asked together."""
        for together in self._together(map(self._begun, episodes)):
            answers = iter(self.asking.ask([question for inquiry, _ in together for question in inquiry.questions]))
            for inquiry, prompt in together:
                yield inquiry.labels([*islice(answers, len(inquiry.questions))]).by(self.identity, prompt)

    def _begun(self, episode: Episode) -> tuple[Inquiry, str]:
        """Return the questions about an episode, and the hash of the prompt."""
        pictures = pictures_of(episode.observations, self.camera)
        instruction = required(self.instruction or episode.instruction)
        prompt = hash_of(self.words.encode(), instruction.encode())
        if not len(episode):
            return Inquiry((), lambda _: Labels.missing(0)), prompt
        places, count, terminated = self.places(len(pictures)), len(pictures), episode.terminated
        questions, scores = self.inquiry(pictures, places, instruction)
        return Inquiry(questions, lambda answers: self._paid(scores(answers), places, count, terminated=terminated)), prompt

    def _together(self, inquiries: Iterable[tuple[Inquiry, str]]) -> Iterator[list[tuple[Inquiry, str]]]:
        """Yield groups of inquiries with enough questions to keep all connections of the judge busy."""
        most, group = 2 * int(getattr(self.asking.model, "concurrency", 1)), list[tuple[Inquiry, str]]()
        for each in inquiries:
            group.append(each)
            if sum(len(inquiry.questions) for inquiry, _ in group) >= most:
                yield group
                group = []
        if group:
            yield group

    def _paid(self, scores: Labels, places: Places, count: int, *, terminated: bool) -> Labels:
        """Return the rewards of an episode with `count` pictures from its scores at some places."""
        scores = held(scores, places, count)
        after = scores if self.mode != "level" else Labels(scores.values[1:], scores.valid[1:])
        return self.rewards(after, terminated=terminated)


def held(scores: Labels, places: Places, count: int) -> Labels:
    """Return a score for each of `count` pictures: the score of the last judged picture at or before it.

    A missing score holds, too. places: numbers of the judged pictures.
    """
    last = np.searchsorted(places, np.arange(count), side="right") - 1
    return Labels(scores.values[last], scores.valid[last])


def scores_of(values: Sequence[float | None]) -> Labels:
    """Convert scores into labels; None becomes a missing label."""
    valid = np.array([value is not None for value in values], np.bool_)
    return Labels(np.array([value or 0.0 for value in values], np.float32), valid)


def required(instruction: str | None) -> str:
    """Return the instruction; raises InvalidSetting if there is none."""
    if not instruction:
        raise InvalidSetting(
            "What shall be done? The episode does not say it.", fix='--reward.settings.instruction "pick up the cube"'
        )
    return instruction


@dataclass(frozen=True, kw_only=True)
class LargeRewardModel(EpisodeJudge):
    """Base class of LRM's rewards: every few steps a judge answers several questions (heads), and the values are averaged."""

    heads: ClassVar[Sequence[Head]]
    """Questions whose values are averaged."""

    every: int = 10
    """[steps] between two moments that are judged, 1 or more; the last picture of an episode is always judged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"every": (self.every >= 1, "1 or more")})

    def places(self, count: int) -> Places:
        """Return every `every`-th picture, from the first on, and the last."""
        return np.unique([*range(0, count, self.every), count - 1])

    @override
    def inquiry(self, pictures: Pictures, places: Places, instruction: str) -> Inquiry:
        """Return the questions of all heads; a score is the mean of their values, missing if one of them is missing."""
        shown = pictures[places]  # a copy that begins with the first picture
        moments = [Moment(shown[0], before, now) for before, now in zip([None, *shown], shown, strict=False)]
        return self._inquiry(moments, instruction)

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return one score for each picture; raises InvalidSetting if a head compares moments."""
        if any(head.is_for_pairs for head in self.heads):
            return super().score(pictures, firsts, instruction)
        moments = [Moment(first, None, now) for first, now in zip(firsts, pictures, strict=True)]
        asked = self._inquiry(moments, required(self.instruction or instruction))
        return asked.labels(self.asking.ask(asked.questions))

    def _inquiry(self, moments: Sequence[Moment], instruction: str) -> Inquiry:
        pairs = [(moment, head) for moment in moments for head in self.heads]
        questions = [head.question(moment, instruction) for moment, head in pairs]

        def scores(answers: Sequence[Answer]) -> Labels:
            left = iter(answers)
            contents = [next(left).content if question is not None else {} for question in questions]
            values = [
                head.value(moment, content) if content else head.unasked(moment)
                for (moment, head), content in zip(pairs, contents, strict=True)
            ]
            count = len(self.heads)
            return scores_of([_mean(values[start : start + count]) for start in range(0, len(values), count)])

        return Inquiry([question for question in questions if question is not None], scores)


@dataclass(frozen=True, kw_only=True)
class JudgeProgress(LargeRewardModel):
    """Reward that is the progress of the task in the opinion of a judge, 0 to 1 in tenths (LRM)."""

    name: ClassVar[str] = "judge-progress"
    heads: ClassVar[Sequence[Head]] = (ProgressHead(),)
    words: ClassVar[str] = ProgressHead.words


@dataclass(frozen=True, kw_only=True)
class JudgeCompletion(LargeRewardModel):
    """Reward that is 1 if a judge sees the task done, else 0 (LRM)."""

    name: ClassVar[str] = "judge-completion"
    heads: ClassVar[Sequence[Head]] = (CompletionHead(),)
    words: ClassVar[str] = CompletionHead.words


@dataclass(frozen=True, kw_only=True)
class JudgeContrast(LargeRewardModel):
    """Reward that compares with a few steps before: 1 if a judge sees more of the task done, 0 if less (LRM).

    Equal pictures give 0.5.
    """

    name: ClassVar[str] = "judge-contrast"
    heads: ClassVar[Sequence[Head]] = (ContrastHead(),)
    words: ClassVar[str] = ContrastHead.words


@dataclass(frozen=True, kw_only=True)
class JudgeTri(LargeRewardModel):
    """Reward that is the mean of a judge's contrast, progress and completion, each 0 to 1 (LRM)."""

    name: ClassVar[str] = "judge-tri"
    heads: ClassVar[Sequence[Head]] = (ContrastHead(), ProgressHead(), CompletionHead())
    words: ClassVar[str] = ContrastHead.words + ProgressHead.words + CompletionHead.words


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(values) if len(known) == len(values) else None


@dataclass(frozen=True, kw_only=True)
class ClipJudge(EpisodeJudge):
    """Base class of rewards that ask a judge one question about a whole clip."""

    frames: int
    """Pictures of the clip, 2 or more, evenly spaced, including the first and the last of the episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"frames": (self.frames >= 2, "2 or more")})

    def _inquiry(
        self, instruction: str, shown: Sequence[str | Picture], form: type[Form], scores: Callable[[Mapping[str, Any]], Labels]
    ) -> Inquiry:
        """Return an inquiry of one question.

        scores: computes the scores from the content of the answer, which is empty if the answer is missing.
        """
        question = Question((worded(self.words, instruction), *shown), form, SYSTEM)
        return Inquiry([question], lambda answers: scores(answers[0].content))


def clip(pictures: Pictures) -> list[str | Picture]:
    """Return the pictures of a clip, each after a text with its number, as parts of a question."""
    return [part for number, picture in enumerate(pictures, 1) for part in (f"Picture {number}:", picture)]


class OrdinalForm(Form):
    """Form of an answer: grade of the task's outcome, from 1, the worst, to 5, the best."""

    score: Annotated[int, pydantic.Field(ge=1, le=5)]


@dataclass(frozen=True, kw_only=True)
class JudgeOrdinal(ClipJudge):
    """Reward in the last step of an episode: a judge's grade for its outcome, scaled to 0..1 (RoboReward).

    The grade is 1 to 5. Earlier steps get 0.
    """

    name: ClassVar[str] = "judge-ordinal"
    words: ClassVar[str] = (
        "The task of the robot: <task>{instruction}</task>\n"
        "The pictures are a clip of the robot, in the order of time. Judge by the state "
        "in the last one alone.\n1: nothing of the task is done.\n2: hardly anything is done.\n3: some of it is done.\n"
        "4: nearly all is done, with a small flaw.\n5: the task is done."
    )
    frames: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"mode": (self.mode == "level", "level: it is no curve")})

    def places(self, count: int) -> Places:
        """Return the numbers of evenly spaced pictures, at least two, which may be the same."""
        return np.linspace(0, count - 1, min(self.frames, max(count, 2))).round().astype(np.intp)

    @override
    def inquiry(self, pictures: Pictures, places: Places, instruction: str) -> Inquiry:
        """Return one question about the whole clip."""
        return self._inquiry(instruction, clip(pictures[places]), OrdinalForm, _graded)

    @override
    def _paid(self, scores: Labels, places: Places, count: int, *, terminated: bool) -> Labels:
        """Return 0 for each step but the last, whose label is missing if the answer is missing."""
        values, valid = np.zeros(count - 1, np.float32), np.ones(count - 1, np.bool_)
        values[-1], valid[-1] = scores.values[0], scores.valid[0]
        return Labels(values, valid)


def _graded(content: Mapping[str, Any]) -> Labels:
    return scores_of([(content["score"] - 1) / 4 if content else None])


class Frame(Form):
    """Form of an answer about one picture: its description, and the share of the task that is done, 0 to 100 percent."""

    description: str
    percent: Annotated[float, pydantic.Field(ge=0, le=100)]


@dataclass(frozen=True, kw_only=True)
class JudgeOrder(ClipJudge):
    """Reward that is the progress in a judge's opinion, with pictures shown in shuffled order (GVL).

    The judge then cannot simply count upwards.
    """

    name: ClassVar[str] = "judge-order"
    words: ClassVar[str] = (
        "The task of the robot: <task>{instruction}</task>\n"
        "The first picture is from the start, where 0 percent of the task are done. The "
        "other ones are from the same episode, in an order that means nothing. Say of each in at most ten words what it shows, "
        "and how many percent of the task are done in it, from 0 to 100."
    )
    frames: int = 15

    def places(self, count: int) -> Places:
        """Return the numbers of evenly spaced pictures, none of them twice."""
        return np.unique(np.linspace(0, count - 1, min(self.frames, count)).round().astype(np.intp))

    @override
    def inquiry(self, pictures: Pictures, places: Places, instruction: str) -> Inquiry:
        """Return one question about the progress in all pictures; the first one has progress 0, as the prompt says."""
        first, *later = pictures[places]
        chance = np.random.default_rng(int(hash_of(pictures[places].tobytes(), instruction.encode()), 16))
        order = chance.permutation(len(later))  # order[i]: index of the later picture that is shown as number i
        shown = [part for number, one in enumerate(order, 1) for part in (f"frame_{number}:", later[one])]

        def scores(content: Mapping[str, Any]) -> Labels:
            percents: list[float | None] = [None] * len(order)
            for number, one in enumerate(order, 1):
                percents[one] = content[f"frame_{number}"]["percent"] / 100 if content else None
            return scores_of([0.0 if content else None, *percents])

        return self._inquiry(instruction, ("Start, 0 percent:", first, *shown), order_form(len(order)), scores)


@cache
def order_form(count: int) -> type[Form]:
    """Make the form of an answer that names each of `count` pictures exactly once."""
    frames: dict[str, Any] = {f"frame_{number}": (Frame, ...) for number in range(1, count + 1)}
    return pydantic.create_model("OrderForm", __base__=Form, **frames)
