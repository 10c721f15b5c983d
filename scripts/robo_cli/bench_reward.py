"""How fast a dataset is labelled, beside the bare model, and how fast it is labelled again from the cache.

The models are convolutional networks with random weights: their answers mean nothing, their speed is that of a small model,
for which everything around it counts most, and of one ten times as slow; CLIP is slower still. Labelling reads episodes,
embeds their pictures in batches and stores labels and cache on disk; the bare model is given pictures that lie ready as
floats, in batches of whatever size is best for it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from robo_datasets.dataset import Dataset
from robo_datasets.label_cache import LabelCache
from robo_datasets.labelling import label
from robo_rl.benchmark import Cases, Effort, Measurement, Trial, measurement
from robo_rl.rewards.embedding import embedded, on_device
from robo_rl.rewards.image_text import ImageTextModel
from robo_rl.rewards.pictures import Pictures
from robo_rl.rewards.vlm_rm import VLMRM
from robo_rl.spec import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import ActionSource, Episode

SIZE, STEPS = 64, 200
"""[pixel] of a picture; steps of an episode."""
EPISODES = {32: 60, 96: 10}
"""Channels of the first layer, half those of the others -> episodes that are labelled: so many that stores count little."""
BATCHES = (1, 4, 16, 32, 64, 128, 256)
SPEC = EnvironmentSpec(
    "labelling",
    ObservationSpec((ArraySpec("camera_front", (SIZE, SIZE, 3), "uint8", 0, 255, role="image"),)),
    ActionSpec(("a",), (-1.0,), (1.0,), ("1",)),
)


def cases(effort: Effort) -> Cases:
    """Returns labelling by the model and from the cache; trials below a second get less data."""
    share = min(1.0, effort.seconds)
    many = max(2, int(share * 100))
    of = f"episodes of {STEPS} pictures {SIZE}x{SIZE}x3"
    episodes = {width: max(2, int(share * most)) for width, most in EPISODES.items()}
    by_model = {f"label {number} {of}, random network of width {width}": width for width, number in episodes.items()}
    again = f"label {many} {of} again, from the cache"
    found: Cases = {case: partial(_measure_model, case, episodes[width], width, effort) for case, width in by_model.items()}
    return found | {again: partial(_measure_cache, again, many, effort)}


@dataclass(frozen=True)
class RandomNetwork:
    """An image-text model with random weights, which knows nothing."""

    batch: int = 64
    width: int = 32

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and no hash: the weights follow from a seed."""
        return "random network", str(self.width)

    def embed_pictures(self, pictures: Pictures) -> npt.NDArray[np.float32]:
        """Returns (N, 2 * width) unit vectors."""
        return embedded(pictures, self.batch, self.prepared, self.network)

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns (N, 2 * width) unit vectors that follow from the lengths of the texts."""
        vectors = [np.random.default_rng(len(text)).normal(size=2 * self.width).astype(np.float32) for text in texts]
        return np.stack([vector / np.linalg.norm(vector) for vector in vectors])

    @staticmethod
    def prepared(pictures: Pictures) -> torch.Tensor:
        """Returns (N, 3, H, W) in [0, 1]."""
        return torch.from_numpy(pictures).permute(0, 3, 1, 2).float().div_(255)

    @cached_property
    def network(self) -> nn.Sequential:
        """Four convolutions and a mean: 0.1 million parameters at width 32, 0.8 at 96."""
        torch.manual_seed(0)
        channels = (3, self.width, *[2 * self.width] * 3)
        layers = [layer for size, following in pairwise(channels) for layer in (nn.Conv2d(size, following, 3, 2, 1), nn.ReLU())]
        network: nn.Sequential = on_device(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), "cpu")
        return network


@dataclass(frozen=True, kw_only=True)
class RandomReward(VLMRM):
    """VLM-RM with such a network."""

    network: RandomNetwork

    @cached_property
    def embedder(self) -> ImageTextModel:
        """The network."""
        return self.network


def _measure_model(case: str, episodes: int, width: int, effort: Effort) -> Measurement:
    torch.set_num_threads(effort.threads)
    with tempfile.TemporaryDirectory() as folder:
        dataset = _recorded(Path(folder) / "data", episodes)
        pictures = next(iter(dataset)).observations["camera_front"]
        batch = _best_batch(pictures, width, effort)
        model, numbers = RandomNetwork(batch, width), count()

        def ours(_: float) -> float:
            number = next(numbers)
            return _labelling(dataset, _reward(model), f"set-{number}", LabelCache(Path(folder) / f"cache-{number}"))

        trials: dict[str, Trial] = {
            "ours": ours,
            "picture by picture": partial(_speed, lambda: model.embed_pictures(pictures[:1]), 1),
            f"the bare model, {batch} at once": partial(_bare, model, pictures, batch),
        }
        return measurement("reward", case, "pictures/s", trials, effort, bounds=[f"the bare model, {batch} at once"])


def _measure_cache(case: str, episodes: int, effort: Effort) -> Measurement:
    torch.set_num_threads(effort.threads)
    with tempfile.TemporaryDirectory() as folder:
        dataset, cache = _recorded(Path(folder) / "data", episodes), LabelCache(Path(folder) / "cache")
        reward, numbers = _reward(RandomNetwork()), count()
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


def _labelling(dataset: Dataset, reward: RandomReward, name: str, cache: LabelCache) -> float:
    """Returns how many pictures were labelled in a second, everything included."""
    started = time.perf_counter()
    done = label(dataset, reward, name, cache=cache)
    return done * STEPS / (time.perf_counter() - started)


def _reward(network: RandomNetwork) -> RandomReward:
    return RandomReward(model="random network", goal=("goal",), baseline=("baseline",), network=network)


def _best_batch(pictures: Pictures, width: int, effort: Effort) -> int:
    """Returns how many pictures the bare model is given at once to be fastest."""
    seconds = min(effort.seconds, 0.5)
    return max(BATCHES, key=lambda batch: _bare(RandomNetwork(batch, width), pictures, batch, seconds))


def _bare(model: RandomNetwork, pictures: Pictures, batch: int, seconds: float) -> float:
    ready = model.prepared(np.resize(pictures, (batch, *pictures.shape[1:])))
    with torch.inference_mode():
        return _speed(lambda: model.network(ready), batch, seconds)


def _speed(work: Callable[[], object], items: int, seconds: float) -> float:
    """Returns items per second."""
    work()
    done, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < seconds or not done:
        work()
        done += items
    return done / passed


def _recorded(path: Path, episodes: int) -> Dataset:
    """Returns a dataset."""
    dataset = Dataset.create(path, SPEC)
    with dataset.writer() as writer:
        for number in range(episodes):
            writer.add(_episode(number))
    return dataset


def _episode(number: int) -> Episode:
    """Returns an episode of a square on a coarse floor, which packs to about a sixth, as our arm's pictures do."""
    generator = np.random.default_rng(number)
    grain = np.kron(generator.integers(0, 8, (SIZE // 8, SIZE // 8, 3)), np.ones((8, 8, 1)))
    floor = (np.linspace(60, 140, SIZE)[:, None, None] + grain).astype(np.uint8)
    pictures = np.repeat(floor[None], STEPS + 1, axis=0)
    for picture, (row, column) in zip(pictures, generator.integers(0, SIZE - 8, (STEPS + 1, 2)), strict=True):
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
        spec_fingerprint=SPEC.fingerprint,
    )
