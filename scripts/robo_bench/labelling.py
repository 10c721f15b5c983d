"""Measure labelling of a dataset against the bare model, and labelling again from the cache.

Labelling reads episodes, embeds their pictures in batches and stores labels and cache on disk; the bare model is given pictures
prepared beforehand, in batches of the best size for it.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from itertools import count, cycle
from pathlib import Path

import numpy as np
import torch

from robo_bench.episodes import camera, dataset_of, episode_of, spec_of
from robo_bench.labelling_models import MODELS, LabellingModel, small_reward
from robo_bench.measurement import Bound, Case, Contestants, Effort, Trial, each, rate, timed
from robo_datasets.dataset import Dataset
from robo_datasets.label_cache import LabelCache
from robo_datasets.labelling import label
from robo_rl.rewards.images.picture_reward import PictureReward, Pictures
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode

SIZE, STEPS = 64, 200
"""Height and width [pixel] of a picture that is labelled from the cache, and steps of an episode."""


def cases(effort: Effort) -> list[Case]:
    """Return labelling by the models that are installed, and from the cache; trials below a second get less data."""
    share = min(1.0, effort.seconds)
    found = []
    for name, model in MODELS.items():
        if name.startswith("CLIP") and find_spec("transformers") is None:
            continue
        episodes = max(1, int(share * model.episodes))
        case = f"label {episodes} episodes of {STEPS} pictures {model.size}x{model.size}x3, {name}"
        found.append(Case(case, "pictures/s", partial(_by_model, episodes, model)))
    many = max(2, int(share * 100))
    again = f"label {many} episodes of {STEPS} pictures {SIZE}x{SIZE}x3 again, from the cache"
    return [*found, Case(again, "pictures/s", partial(_from_cache, many))]


def _by_model(episodes: int, model: LabellingModel, effort: Effort, stack: ExitStack) -> Contestants:
    torch.set_num_threads(effort.cores)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    dataset = _recorded(folder / "data", episodes, model.size)
    pictures = next(iter(dataset)).observations["camera_front"]
    _, prepare = model.build(folder / "bare", pictures, 1)

    def bare(batch: int) -> Trial:
        forward = prepare(np.resize(pictures, (batch, *pictures.shape[1:])))
        forward()
        return torch.inference_mode()(rate(each(forward, batch)))

    batch = max(model.batches, key=lambda size: bare(size)(min(effort.seconds, 0.5)))
    (reward, _), numbers = model.build(folder / "model", pictures, batch), count()

    def ours(_: float) -> float:
        number = next(numbers)
        return _labelling(dataset, reward, f"set-{number}", LabelCache(folder / f"cache-{number}"))

    return {"ours": ours, f"the bare model, {batch} at once": Bound(bare(batch))}


def _from_cache(episodes: int, effort: Effort, stack: ExitStack) -> Contestants:
    torch.set_num_threads(effort.cores)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    dataset, cache = _recorded(folder / "data", episodes, SIZE), LabelCache(folder / "cache")
    reward, numbers = small_reward(), count()
    label(dataset, reward, "first", cache=cache)
    entries = cycle(dataset.entries())
    return {
        "ours": lambda _: _labelling(dataset, reward, f"set-{next(numbers)}", cache),
        "asking the model": rate(each(lambda: reward.label(dataset.read(next(entries))), STEPS)),
    }


def _labelling(dataset: Dataset, reward: PictureReward, name: str, cache: LabelCache) -> float:
    """Return how many pictures were labelled in a second, everything included."""
    return timed(lambda: STEPS * label(dataset, reward, name, cache=cache), 0.0).rate


def _recorded(path: Path, episodes: int, size: int) -> Dataset:
    spec = spec_of("labelling", camera(size))
    return dataset_of(path, spec, (_episode(number, size, spec) for number in range(episodes)))


def _episode(number: int, size: int, spec: EnvironmentSpec) -> Episode:
    """Return an episode of a square on a coarse floor, which packs to about a sixth or less, as our arm's pictures do."""
    generator = np.random.default_rng(number)
    pictures = np.repeat(_floor(size)[None], STEPS + 1, axis=0)
    for picture, (row, column) in zip(pictures, generator.integers(0, size - 8, (STEPS + 1, 2)), strict=True):
        picture[row : row + 8, column : column + 8] = (220, 40, 40)
    return episode_of(spec, pictures, np.zeros((STEPS, 1), np.float32), np.zeros(STEPS, np.float32), number)


def _floor(size: int) -> Pictures:
    """Return the scene (H, W, 3), which stands still."""
    grain = np.kron(np.random.default_rng(0).integers(0, 8, (size // 8, size // 8, 3)), np.ones((8, 8, 1)))
    floor: Pictures = (np.linspace(60, 140, size)[:, None, None] + grain).astype(np.uint8)
    return floor
