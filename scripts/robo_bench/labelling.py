"""How fast a dataset is labelled, beside the bare model, and how fast it is labelled again from the cache.

Labelling reads episodes, embeds their pictures in batches and stores labels and cache on disk; the bare model is given pictures
that lie ready as it wants them, in batches of whatever size is best for it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np
import torch

from robo_bench.labelling_models import MODELS, Forward, LabellingModel, RandomNetwork, small_reward
from robo_bench.measurement import Cases, Effort, Measurement, Trial, measurement
from robo_datasets.dataset import Dataset
from robo_datasets.label_cache import LabelCache
from robo_datasets.labelling import label
from robo_rl.rewards.pictures import PictureReward, Pictures
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import ActionSource, Episode

SIZE, STEPS = 64, 200
"""[pixel] of a picture that is labelled from the cache; steps of an episode."""


def cases(effort: Effort) -> Cases:
    """Returns labelling by the models that are installed, and from the cache; trials below a second get less data."""
    share = min(1.0, effort.seconds)
    found: Cases = {}
    for name, model in MODELS.items():
        if name.startswith("CLIP") and find_spec("transformers") is None:
            continue
        episodes = max(1, int(share * model.episodes))
        case = f"label {episodes} episodes of {STEPS} pictures {model.size}x{model.size}x3, {name}"
        found[case] = partial(_measure_model, case, episodes, model, effort)
    many = max(2, int(share * 100))
    again = f"label {many} episodes of {STEPS} pictures {SIZE}x{SIZE}x3 again, from the cache"
    return found | {again: partial(_measure_cache, again, many, effort)}


def _measure_model(case: str, episodes: int, model: LabellingModel, effort: Effort) -> Measurement:
    torch.set_num_threads(effort.cores)
    with tempfile.TemporaryDirectory() as folder:
        dataset = _recorded(Path(folder) / "data", episodes, model.size)
        pictures = next(iter(dataset)).observations["camera_front"]
        seconds = min(effort.seconds, 0.5)
        asked = model.reward(Path(folder) / "bare", pictures, 1)

        def bare(batch: int) -> tuple[Forward, int]:
            return model.forward(asked, np.resize(pictures, (batch, *pictures.shape[1:]))), batch

        batch = max(model.batches, key=lambda size: _speed(*bare(size), seconds))
        reward, numbers = model.reward(Path(folder) / "model", pictures, batch), count()

        def ours(_: float) -> float:
            number = next(numbers)
            return _labelling(dataset, reward, f"set-{number}", LabelCache(Path(folder) / f"cache-{number}"))

        limit = f"the bare model, {batch} at once"
        trials: dict[str, Trial] = {"ours": ours, limit: partial(_speed, *bare(batch))}
        return measurement("reward", case, "pictures/s", trials, effort, bounds=[limit])


def _measure_cache(case: str, episodes: int, effort: Effort) -> Measurement:
    torch.set_num_threads(effort.cores)
    with tempfile.TemporaryDirectory() as folder:
        dataset, cache = _recorded(Path(folder) / "data", episodes, SIZE), LabelCache(Path(folder) / "cache")
        pictures = next(iter(dataset)).observations["camera_front"]
        reward, numbers = small_reward(Path(folder), pictures, RandomNetwork.batch), count()
        label(dataset, reward, "first", cache=cache)
        entries = dataset.entries()

        def asking(seconds: float) -> float:
            done, started = 0, time.perf_counter()
            while (passed := time.perf_counter() - started) < seconds or not done:
                reward.label(dataset.read(entries[done % len(entries)]))
                done += 1
            return done * STEPS / passed if passed else 0.0

        trials: dict[str, Trial] = {
            "ours": lambda _: _labelling(dataset, reward, f"set-{next(numbers)}", cache),
            "asking the model": asking,
        }
        return measurement("reward", case, "pictures/s", trials, effort)


def _labelling(dataset: Dataset, reward: PictureReward, name: str, cache: LabelCache) -> float:
    """Returns how many pictures were labelled in a second, everything included."""
    started = time.perf_counter()
    done = label(dataset, reward, name, cache=cache)
    return done * STEPS / (time.perf_counter() - started)


@torch.inference_mode()
def _speed(work: Callable[[], object], items: int, seconds: float) -> float:
    """Returns items per second."""
    work()
    done, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds or not done:
        work()
        done += items
    return done / passed


def _recorded(path: Path, episodes: int, size: int) -> Dataset:
    """Returns a dataset."""
    camera = ArraySpec("camera_front", (size, size, 3), "uint8", 0, 255, role="image")
    spec = EnvironmentSpec("labelling", ObservationSpec((camera,)), ActionSpec(("a",), (-1.0,), (1.0,), ("1",)))
    dataset = Dataset.create(path, spec)
    with dataset.writer() as writer:
        for number in range(episodes):
            writer.add(_episode(number, size, spec))
    return dataset


def _episode(number: int, size: int, spec: EnvironmentSpec) -> Episode:
    """Returns an episode of a square on a coarse floor, which packs to about a sixth or less, as our arm's pictures do."""
    generator = np.random.default_rng(number)
    pictures = np.repeat(_floor(size)[None], STEPS + 1, axis=0)
    for picture, (row, column) in zip(pictures, generator.integers(0, size - 8, (STEPS + 1, 2)), strict=True):
        picture[row : row + 8, column : column + 8] = (220, 40, 40)
    actions = np.zeros((STEPS, 1), np.float32)
    return Episode(
        observations={"camera_front": pictures},
        actions=actions,
        policy_actions=actions,
        rewards=np.zeros(STEPS, np.float32),
        sources=np.full(STEPS, ActionSource.SCRIPT, np.int8),
        timestamps=np.arange(STEPS + 1, dtype=np.float64),
        terminated=False,
        truncated=True,
        stop_reason="time_limit",
        success=None,
        seed=number,
        spec_fingerprint=spec.fingerprint,
    )


def _floor(size: int) -> Pictures:
    """Returns the scene (H, W, 3), which stands still."""
    grain = np.kron(np.random.default_rng(0).integers(0, 8, (size // 8, size // 8, 3)), np.ones((8, 8, 1)))
    floor: Pictures = (np.linspace(60, 140, size)[:, None, None] + grain).astype(np.uint8)
    return floor
