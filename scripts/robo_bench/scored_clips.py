"""robo-rl reward bench: errors of a reward model on short clips with a sentence and a score that follows from state.

After RoboReward: the same clip with another sentence (counterfactual), the same sentence with a clip that stops earlier
(clipped). Both come from the simulator's state, so that no label is a guess: a sentence that is called wrong is false by its
predicate.

    1 no progress, 2 a little, 3 half, 4 nearly, 5 done; (score - 1) / 4 is the correct answer of a model in [0, 1]

N pictures, I instructions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import tyro

from robo_app.arguments.free_settings import RewardModelSettings
from robo_app.display.display import counted
from robo_app.recipes.recipe import require_at_least
from robo_app.recipes.reward_file import read_reward
from robo_rl.environments.captioned_pictures import CaptionedPictures, captioned_pictures
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.figures import Figure, by_episode, mean_of, rank_correlations, unknown
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.images.picture_reward import PICTURES_ALONE
from robo_rl.runs.run import write_text
from robo_rl.types import Episode

SCORES = (1, 2, 3, 4, 5)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clip:
    """Clip of a scene, from its start to one of its pictures, with a sentence and the score that the sentence deserves."""

    picture: int
    instruction: int
    words: str
    score: int
    is_counterfactual: bool
    """True if the clip shows another task being done than the one that the sentence describes."""


FIGURES = {
    "error": "mean absolute error of the score, 1 to 5",
    "correlation": "rank correlation with the score",
    "wrong": "mean score if another task was done",
    "text_alone": "mean absolute error from the words alone",
    "missing": "share without an answer",
}
"""Name of a figure of a reward model -> meaning; scores are measured if all answers are in [0, 1]. "The words alone": the best
that follows from the sentences without pictures."""


def scores_of(data: CaptionedPictures) -> npt.NDArray[np.int64]:
    """Return (N, I) scores by the share done of the distance left at the start; 5 only if the instruction is complete.

    0 if the clip has no score: if the scene lacks a named object, or all was done at the start.
    """
    began = data.progress[data.firsts]
    left = 1 - began
    share = np.where(left > 0, (data.progress - began) / np.where(left > 0, left, 1), 0)
    scores = np.where(data.complete, 5, 1 + np.clip(np.floor(4 * share), 0, 3).astype(np.int64))
    return np.where(_are_there(data) & ~data.complete[data.firsts] & (left > 0), scores, 0)


def clips_of(data: CaptionedPictures, each: int = 40, seed: int = 0) -> list[Clip]:
    """Return clips, for every instruction as many of each score, at most `each`: the words alone say nothing.

    Clips in which another instruction is complete are preferred if the score is 1 or 2. Raises InvalidSetting if no
    instruction has clips of every score.
    """
    random, scores = np.random.default_rng(seed), scores_of(data)
    chosen: list[Clip] = []
    for index, wordings in enumerate(data.instructions):
        others = np.delete(data.complete, index, axis=1).any(axis=1) & ~data.complete[:, index]
        found = {score: np.flatnonzero(scores[:, index] == score) for score in SCORES}
        count = min(each, *map(len, found.values()))
        for score, pictures in found.items():
            dealt = random.permutation(pictures)
            if score <= 2:
                dealt = dealt[np.argsort(~others[dealt], kind="stable")]
            for picture in dealt[:count].tolist():
                words = wordings[int(random.integers(len(wordings)))]
                chosen.append(Clip(picture, index, words, score, bool(others[picture]) and score <= 2))
    if not chosen:
        raise InvalidSetting("No instruction has clips of every score.", got=f"{len(data)} pictures", fix="draw more of them")
    return chosen


def _are_there(data: CaptionedPictures) -> npt.NDArray[np.bool_]:
    """Return (N, I): all that an instruction names is in the scene."""
    there: npt.NDArray[np.bool_] = np.all(np.isfinite(data.positions), axis=2)
    slots = [[data.slots.index(name) for name in names] for names in data.named]
    return np.stack([there[:, columns].all(axis=1) for columns in slots], axis=1)


def episode_of(data: CaptionedPictures, clip: Clip) -> Episode:
    """Return a clip as an episode of one step; its reward is the correct answer."""
    pictures = data.pictures[[data.firsts[clip.picture], clip.picture]]
    action = np.zeros((1, 1), np.float32)
    return Episode(
        observations={f"camera_{data.camera}": pictures},
        actions=action,
        policy_actions=action,
        rewards=np.array([(clip.score - 1) / 4], np.float32),
        sources=np.zeros(1, np.int8),
        timestamps=np.arange(2, dtype=np.float64),
        terminated=False,
        truncated=True,
        stop_reason="time_limit",
        success=clip.score == SCORES[-1],
        seed=None,
        spec_fingerprint=PICTURES_ALONE,
        instruction=clip.words,
    )


def scored(
    model: RewardModel, data: CaptionedPictures, clips: Sequence[Clip], shown: Iterable[Clip] | None = None
) -> dict[str, Figure]:
    """Return the FIGURES of a reward model; `shown` passes the clips on one by one, and may show how far that got."""
    answers = np.array([model.label(episode_of(data, clip)).or_nan[-1] for clip in (clips if shown is None else shown)])
    truth = np.array([clip.score for clip in clips], np.float64)
    scenes = np.unique([int(data.firsts[clip.picture]) for clip in clips], return_inverse=True)[1]
    known = np.isfinite(answers)
    is_unit = bool(known.any()) and float(answers[known].min()) >= 0 and float(answers[known].max()) <= 1
    errors = np.abs(1 + 4 * answers - truth)
    wrong = np.array([clip.is_counterfactual for clip in clips])
    return {
        "error": _by_scene(errors, scenes) if is_unit else unknown("clips"),
        "correlation": _correlation(answers[known], truth[known], scenes[known]),
        "wrong": _by_scene(np.where(wrong, 1 + 4 * answers, np.nan), scenes) if is_unit else unknown("clips"),
        "text_alone": _by_scene(np.abs(_from_text(clips, truth, scenes) - truth), scenes),
        "missing": mean_of((~known).astype(np.float64), "clips"),
    }


def _by_scene(values: Floats, scenes: npt.NDArray[np.int64]) -> Figure:
    """Return the mean of the known values, with an interval over scenes: clips of one scene are alike."""
    known = np.isfinite(values)
    index = np.unique(scenes[known], return_inverse=True)[1]
    sums, sizes = (np.bincount(index, weights) for weights in (values[known], np.ones(int(known.sum()))))
    return by_episode(lambda counts: counts @ sums / (counts @ sizes), len(sums), n=int(known.sum()), of="clips")


def _correlation(answers: Floats, truth: Floats, scenes: npt.NDArray[np.int64]) -> Figure:
    index = np.unique(scenes, return_inverse=True)[1]
    scenes_there = int(index.max(initial=-1)) + 1
    return by_episode(
        lambda counts: rank_correlations(answers, truth, counts[:, index]), scenes_there, n=len(answers), of="clips"
    )


def _from_text(clips: Sequence[Clip], truth: Floats, scenes: npt.NDArray[np.int64]) -> Floats:
    """Return for each clip the median score of its very words in other scenes; of all clips if there are none."""
    found = np.full(len(clips), np.median(truth))
    words: dict[str, list[int]] = {clip.words: [] for clip in clips}
    for index, clip in enumerate(clips):
        words[clip.words].append(index)
    for index, clip in enumerate(clips):
        others = [other for other in words[clip.words] if scenes[other] != scenes[index]]
        if others:
            found[index] = np.median(truth[others])
    return found


def facts_of(clips: Sequence[Clip]) -> dict[str, Any]:
    """Return the number of clips, their scores, and the first one as an example."""
    by_score = {str(score): sum(clip.score == score for clip in clips) for score in SCORES}
    return {"clips": len(clips), "by_score": by_score, "counterfactual": sum(c.is_counterfactual for c in clips)} | {
        "example": asdict(clips[0])
    }


@dataclass(frozen=True)
class BenchReward:
    """Score clips of drawn scenes, right and wrong sentences, done and half done: error, and the scores of wrong sentences."""

    reward: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")]
    """A reward model of pictures, or a YAML file with `reward` and `settings`."""
    environment: str
    """Environment of the pictures: robo/ArmReach-v0, robo/ArmPick-v0 or robo/ArmPush-v0."""
    settings: RewardModelSettings = field(default_factory=dict)
    """Setting of the reward model."""
    camera: str = "front"
    """Camera that draws them."""
    image_size: int = 192
    """[pixel] height and width: those of the pictures that the reward knows."""
    pictures: int = 1600
    """Number of pictures that are drawn, eight of each scene."""
    each: int = 40
    """Clips of each instruction and score at most."""
    seed: int = 1_000_000
    """Seed of the scenes; none that a model was trained on."""
    out: Path | None = None
    """File for the figures, JSON."""

    def __post_init__(self) -> None:
        require_at_least(self, {"pictures": 16, "image_size": 32, "each": 1, "seed": 0})


def bench_reward(arguments: BenchReward) -> int:
    """Draw clips, score them and print the figures."""
    model = read_reward(arguments.reward, arguments.settings)
    data = captioned_pictures(
        arguments.environment, camera=arguments.camera, size=arguments.image_size, count=arguments.pictures, seed=arguments.seed
    )
    clips = clips_of(data, arguments.each, arguments.seed)
    found = scored(model, data, clips, counted(f"score with {arguments.reward}", "clips", clips))
    facts = facts_of(clips)
    print(f"{facts['clips']} clips, {facts['counterfactual']} of them in which another task was done")
    for name, figure in found.items():
        print(f"{FIGURES[name]:44} {figure.interval if figure.is_measured else 'not measured'} (n = {figure.n})")
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        name, weights = model.identity
        origin = {"reward": name, "weights": weights, "environment": arguments.environment, "seed": arguments.seed}
        figures = {name: figure.to_json() for name, figure in found.items()}
        write_text(arguments.out, json.dumps(origin | facts | figures, indent=1, allow_nan=False))
    return 0
