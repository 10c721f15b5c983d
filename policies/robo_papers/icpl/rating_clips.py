"""Show episodes of policies to a rater of pictures, a person on a page or a vision model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

from robo_app.display.browser import open_page
from robo_app.recipes.environments import environment_of
from robo_app.training.assembly import policy_of, recipe_of
from robo_papers.icpl.candidates import Outcome, TrainedCandidate
from robo_papers.icpl.preferring import ChanceComparer, Comparer, OracleComparer, RaterComparer
from robo_papers.icpl.trainer import SELECTION, RecipeTrainer
from robo_rl.entry_points import known, load
from robo_rl.errors import UnknownName
from robo_rl.evaluation.video import Frame, render_mode_for_films, replayed_frames
from robo_rl.rollout.episode import rollout
from robo_rl.settings import settings_as
from robo_rl.types import Episode

CAMERA, WIDTH = "film", 256
"""Name under which raters find the pictures; their width [pixel]."""
HELD = 8
"""Number of candidates whose pictures are kept in memory."""


def rater_comparer(name: str, settings: Mapping[str, Any], trainer: RecipeTrainer, clips: int) -> RaterComparer:
    """Return a comparer that shows a rater `clips` episodes of each policy, from the starts of the score."""
    kind = load("raters", name)
    has_camera = "camera" in {item.name for item in fields(kind)}
    rater = settings_as(kind, {**({"camera": CAMERA} if has_camera else {}), **settings}, source=f"the rater {name}")
    if hasattr(rater, "address"):
        print(f"compare at {rater.address}   (Ctrl-C ends it; what was answered is kept)", flush=True)
        open_page(rater.address)

    @lru_cache(HELD)
    def episodes(folder: str) -> list[Episode]:
        return [*_filmed(trainer, folder, clips)]

    def of(candidate: TrainedCandidate) -> list[Episode]:
        return episodes((candidate.outcome or Outcome()).folder)

    return RaterComparer(rater, of)


def _filmed(trainer: RecipeTrainer, folder: str, clips: int) -> Iterator[Episode]:
    """Yield episodes of a run's policy, with pictures of the whole scene in place of its observations."""
    run = trainer.run_of(Outcome(folder=folder))
    recipe = recipe_of(run)
    policy, plain = policy_of(run, recipe), environment_of(recipe)
    stage = environment_of(recipe, render_mode=render_mode_for_films(plain))
    first = recipe.evaluation.seed + SELECTION
    for seed in range(first, first + clips):
        episode = rollout(plain, policy, seed=seed, deterministic=True)
        frames = [_small(pictures[-1]) for pictures in replayed_frames(stage, episode)]
        yield replace(episode, observations={f"camera_{CAMERA}": np.stack(frames)})
    plain.close()
    stage.close()


def _small(frame: Frame) -> Frame:
    height, width = frame.shape[:2]
    size = (WIDTH, round(height * WIDTH / width))
    return np.asarray(cv2.resize(frame, size, interpolation=cv2.INTER_AREA), np.uint8)


def comparer_of(rater: str, settings: Mapping[str, Any], trainer: RecipeTrainer, clips: int) -> Comparer:
    """Return a comparer of policies by name; a rater of pictures compares `clips` episodes. Raises UnknownName."""
    own = {"oracle": OracleComparer, "chance": ChanceComparer}
    if rater in own:
        made: Comparer = settings_as(own[rater], settings, source=f"the rater {rater}")
        return made
    if rater not in known("raters"):
        raise UnknownName("rater", rater, {*own, *known("raters")})
    return rater_comparer(rater, settings, trainer, clips)
