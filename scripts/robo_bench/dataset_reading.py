"""Measure batches from recorded episodes, for `robo-rl bench data`.

All contestants read the same episodes in turns: our cache; numpy arrays in RAM, gathered in the fastest way that numpy has
(`take`) and in the usual one (an index); h5py from one file, uncompressed and contiguous, which is its best case; if they are
installed, Minari's loader, which reads whole episodes, and LeRobot's dataset under PyTorch's loader without worker processes.
Files are in the system's memory; processor time counts. Batches are those of learners: robo_rl.types.Batch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import patch

import h5py
import numpy as np

from robo_bench.episodes import camera, dataset_of, episode_of, spec_of
from robo_bench.measurement import Case, Contestants, Effort, each, microseconds
from robo_datasets.cache import CachedEpisodes
from robo_datasets.conversion import export
from robo_datasets.dataset import Dataset
from robo_rl.entry_points import load
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.types import Array, Episode

BATCH, WINDOWS, LENGTH = 256, 64, 16
STATE, ACTIONS, SIZE = 17, 6, 64
"""Numbers of HalfCheetah; [pixel] of a picture."""
DISCOUNT = 0.99
PERIOD = 0.05
"""[s] between two steps."""
Read = Callable[[], object]
Fields = dict[str, Array]
"""Arrays of a dataset, with one row for each step of all episodes: observation, next, action, reward, terminated."""


def cases(effort: Effort) -> list[Case]:
    """Return batches of transitions and of windows, of numbers and of pictures; trials below a second get less data."""
    state = ArraySpec("state", (STATE,))
    share, found = min(1.0, effort.seconds), []
    for words, array, most, steps in (
        (f"{STATE} numbers", state, 200, 1000),
        (f"pictures {SIZE}x{SIZE}x3", camera(SIZE), 20, 200),
    ):
        episodes = max(2, int(share * most))
        for batch, in_windows in ((f"{BATCH} transitions", False), (f"{WINDOWS} windows x {LENGTH}", True)):
            name = f"{batch} of {words}, {episodes} episodes of {steps}"
            found.append(Case(name, "us", partial(_contestants, array, episodes, steps, in_windows)))
    return found


def _contestants(observed: ArraySpec, episodes: int, steps: int, in_windows: bool, _: Effort, stack: ExitStack) -> Contestants:
    """Return readers, measured in processor time: one thread each, no disk, no effect of other programs."""
    spec = spec_of("reading", observed, ACTIONS, control_period=PERIOD)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    recorded = [_episode(spec, number, steps) for number in range(episodes)]
    dataset = dataset_of(folder / "data", spec, recorded)
    fields = {
        "observation": np.concatenate([episode.observations[observed.name][:-1] for episode in recorded]),
        "next": np.concatenate([episode.observations[observed.name][1:] for episode in recorded]),
        "action": np.concatenate([episode.actions for episode in recorded]),
        "reward": np.concatenate([episode.rewards for episode in recorded]),
        "terminated": np.zeros(episodes * steps, np.bool_),
    }
    rows = np.arange(episodes * steps)
    starts = rows[rows % steps <= steps - LENGTH] if in_windows else rows  # of transitions, or of whole windows
    readers: dict[str, Read] = {
        "ours": _ours(dataset, in_windows),
        "numpy in RAM, take": _arrays(fields, starts, in_windows, lambda array, rows: array.take(rows, 0)),
        "numpy in RAM, index": _arrays(fields, starts, in_windows, lambda array, rows: array[rows]),
        "h5py": _h5py(stack, folder / "all.h5", fields, starts, in_windows),
    }
    if _is_installed("minari"):
        stack.enter_context(patch.dict(os.environ, MINARI_DATASETS_PATH=str(folder)))
        readers["minari"] = _minari(spec, recorded, starts, in_windows)
    if _is_installed("lerobot"):
        readers["lerobot"] = _lerobot(dataset, folder / "lerobot", in_windows)
    return {name: microseconds(each(read)) for name, read in readers.items()}


def _is_installed(package: str) -> bool:
    """Return True if a peer is installed; otherwise a line says that it is left out."""
    if found := importlib.util.find_spec(package) is not None:
        return found
    sys.stderr.write(f"left out: {package}, which is not installed\n")
    return False


def _ours(dataset: Dataset, in_windows: bool) -> Read:
    replay = CachedEpisodes(dataset, dataset.entries()).replay(seed=0)
    return partial(replay.sample_windows, WINDOWS, LENGTH) if in_windows else partial(replay.sample, BATCH)


def _arrays(fields: Fields, starts: Array, in_windows: bool, gather: Callable[[Array, Array], Array]) -> Read:
    """Return a reader of arrays in RAM; the sixth, `human`, and computed columns are part of every batch."""
    observation, following, action, reward, terminated = fields.values()
    generator, human = np.random.default_rng(0), np.zeros(len(reward), np.bool_)

    def transitions() -> tuple[Array, ...]:
        rows = generator.integers(len(starts), size=BATCH)
        masks = 1.0 - gather(terminated, rows).astype(np.float32)
        computed = np.full(BATCH, DISCOUNT, np.float32), np.ones(BATCH, np.float32)
        read = (gather(array, rows) for array in (observation, following, action, reward, human))
        return (*read, masks, *computed)

    def windows() -> tuple[Array, ...]:
        rows = starts.take(generator.integers(len(starts), size=WINDOWS))[:, None] + np.arange(LENGTH)
        return (*(gather(array, rows) for array in (observation, action, reward)), np.ones(rows.shape, np.bool_))

    return windows if in_windows else transitions


def _h5py(stack: ExitStack, path: Path, fields: Fields, starts: Array, in_windows: bool) -> Read:
    """Return a reader of a file: transitions with one sorted list of rows a field, windows slice by slice."""
    with h5py.File(path, "w") as written:
        for name, array in fields.items():
            written.create_dataset(name, data=array)
    file = stack.enter_context(h5py.File(path))
    generator = np.random.default_rng(0)

    def transitions() -> list[Array]:
        rows = np.sort(generator.choice(len(starts), BATCH, replace=False))
        return [file[name][rows] for name in file]

    def windows() -> list[list[Array]]:
        drawn = starts.take(generator.integers(len(starts), size=WINDOWS))
        return [[file[name][start : start + LENGTH] for start in drawn] for name in ("observation", "action", "reward")]

    return windows if in_windows else transitions


def _minari(spec: EnvironmentSpec, episodes: list[Episode], starts: Array, in_windows: bool) -> Read:
    import minari

    (name,) = spec.observation
    steps = len(episodes[0])
    buffers = [
        minari.data_collector.EpisodeBuffer(
            observations=episode.observations[name],
            actions=episode.actions,
            rewards=list(episode.rewards),
            terminations=[False] * (steps - 1) + [episode.terminated],
            truncations=[False] * (steps - 1) + [episode.truncated],
        )
        for episode in episodes
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no environment and no author is named
        dataset = minari.create_dataset_from_buffers(
            "robo/reading-v0",
            buffers,
            observation_space=spec.observation.space[name],
            action_space=spec.action.space,
            jpeg_encoding=False,
        )
    generator = np.random.default_rng(0)

    def read() -> list[Array]:
        rows = starts.take(generator.integers(len(starts), size=WINDOWS if in_windows else BATCH))
        length = LENGTH if in_windows else 1
        found = []
        for episode in dataset.iterate_episodes(np.unique(rows // steps)):  # each of them once
            here = rows[rows // steps == episode.id] % steps
            wanted = here[:, None] + np.arange(length)
            found += [episode.observations[wanted], episode.actions[wanted], episode.rewards[wanted]]
        return found

    return read


def _lerobot(dataset: Dataset, folder: Path, in_windows: bool) -> Read:
    from torch.utils.data import DataLoader

    dataset_of = importlib.import_module("lerobot.datasets.lerobot_dataset").LeRobotDataset  # no dependency: at odds with ours
    export(load("formats", "lerobot"), dataset, folder)
    steps = range(LENGTH if in_windows else 2)  # a transition needs the observation after it, too
    (name,) = dataset.spec.observation
    observation = f"observation.images.{name}" if dataset.spec.observation[name].role == "image" else "observation.state"
    wanted = {observation: steps} | ({"action": steps, "next.reward": steps} if in_windows else {})
    deltas = {name: [PERIOD * step for step in indices] for name, indices in wanted.items()}
    loader = DataLoader(
        dataset_of("robo/reading", root=folder, delta_timestamps=deltas),
        batch_size=WINDOWS if in_windows else BATCH,
        shuffle=True,
        drop_last=True,
    )
    batches = chain.from_iterable(repeat(loader))
    return lambda: next(batches)


def _episode(spec: EnvironmentSpec, number: int, steps: int) -> Episode:
    random = np.random.default_rng(number)
    (array,) = spec.observation.values()
    shape = (steps + 1, *array.shape)
    is_picture = array.dtype == "uint8"
    observations = random.integers(0, 256, shape, np.uint8) if is_picture else random.normal(size=shape).astype(np.float32)
    actions = random.uniform(-1, 1, (steps, ACTIONS)).astype(np.float32)
    return episode_of(spec, observations, actions, random.normal(size=steps).astype(np.float32), number, period=PERIOD)
