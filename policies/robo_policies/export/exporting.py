"""Export a policy: write its files, compare their actions with those of the policy, and keep them only if these agree."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robo_policies.export import run_exported
from robo_policies.export.acting import ActingNetwork, acting_network
from robo_policies.export.description import described
from robo_policies.export.files import PhysicalNetwork, opened, require_format, run, write
from robo_policies.export.formats import FILES, Format
from robo_policies.learners.chunks import FIXED_SEED
from robo_rl.errors import ExportDiffers, InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array

TOLERANCE = 1e-5
"""Largest allowed difference between actions of file and policy, as a share of half of the range of an action element."""
RUNNER = "run_exported.py"
TIMED_CALLS = 200


@dataclass(frozen=True)
class Latency:
    """Time of steps that evaluate the exported network: median and 99th percentile [ms]."""

    median: float
    p99: float


@dataclass(frozen=True)
class Export:
    """Result of an export whose file acts as the policy does: files, largest difference, latency."""

    folder: Path
    difference: float
    """Largest difference between actions of file and policy, as a share of half of the range of an action element. 0 if all
    discrete choices agree."""
    observations: int
    """Number of observations on which policy and file were compared."""
    own: Latency
    exported: Latency


def export(
    policy: Policy,
    to: str,
    out: Path,
    episodes: Sequence[Sequence[Observation]],
    facts: Mapping[str, Any] | None = None,
    *,
    origin: str = "random",
) -> Export:
    """Write a policy as files that act without robo-rl, and keep them only if they act like the policy.

    Args:
        policy: The policy; its deterministic actions are exported.
        to: "onnx", "torchscript" or "safetensors".
        out: Folder that is made, with the file of the policy, policy.json and, except for safetensors, the runner.
        episodes: For each episode the observations, in order, on which policy and file are compared.
        facts: Origin of the policy for policy.json, such as run and learner.
        origin: Origin of the observations, "recorded" or "random".

    Returns:
        The export, with the largest difference and the latencies.

    Raises:
        InvalidSetting: The policy cannot be exported, or the folder exists.
        ExportDiffers: File and policy act differently.
        MissingExtra: A package for the format is not installed.
        UnknownName: There is no such format.
    """
    format_ = require_format(to)
    if out.exists():
        raise InvalidSetting(
            "The folder of the export exists.", got=out, allowed="a folder to make", fix="name another with --out"
        )
    spec, acting = policy.environment_spec, acting_network(policy)
    description = described(acting, spec, format_, facts or {})
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        export_ = _written(policy, acting, format_, partial, episodes, description | {"checked_on": f"{origin} observations"})
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Export(out, *export_)


def _written(
    policy: Policy,
    acting: ActingNetwork,
    to: Format,
    folder: Path,
    episodes: Sequence[Sequence[Observation]],
    description: dict[str, Any],
) -> tuple[float, int, Latency, Latency]:
    spec, path = policy.environment_spec, folder / FILES[to]
    network = PhysicalNetwork(acting, spec.action)
    example = _example(description, episodes[0][0])
    run(network, example)  # constants that a network makes at its first call are not part of the graph then
    fresh = copy.deepcopy(network)  # before an exporter leaves its own tensors in objects of a network
    write(network, to, path, example, acting.memory)
    if to == "safetensors":
        description["network"] = str(network).splitlines()
    file = folder / "policy.json"
    file.write_text(json.dumps(description, indent=1))
    player = _player(fresh, to, folder, description)
    difference, count = compare(policy, player, episodes)
    if not difference <= TOLERANCE:
        raise ExportDiffers(
            f"The exported policy acts otherwise than {type(policy).__name__}.",
            got=f"a difference of {difference:.2g} of half a range, over {count} observations",
            allowed=f"{TOLERANCE:g}; nothing was written",
            fix="look for an operation that is not deterministic, or that depends on more than the observation",
        )
    own = _latency(policy.reset, lambda seen: policy.act(seen, deterministic=True), episodes[0])
    exported = _latency(player.reset, player.act, episodes[0])
    check = {"observations": count, "largest_difference": difference, "tolerance": TOLERANCE}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    file.write_text(json.dumps(description | {"sha256": digest, "check": check}, indent=1))
    if to != "safetensors":
        shutil.copyfile(Path(run_exported.__file__), folder / RUNNER)
    return difference, count, own, exported


def _example(description: Mapping[str, Any], observation: Observation) -> dict[str, Array]:
    """Return an example of each input of the network by name: the observation, then zeros for noise and memory."""
    inputs = {each["name"]: np.array(observation[each["name"]], each["dtype"]) for each in description["inputs"]}
    more = [*description["noise"], *description["memory"]]
    return inputs | {each["name"]: np.zeros(each["shape"], np.float32) for each in more}


def _player(network: PhysicalNetwork, to: Format, folder: Path, description: Mapping[str, Any]) -> Any:
    """Return an ExportedPolicy that plays the written file with the noise of the policy."""
    player: Any = object.__new__(run_exported.ExportedPolicy)
    player.spec, player.network, player.random = description, opened(network, to, folder / FILES[to]), PolicyNoise()
    player.reset()
    return player


class PolicyNoise:
    """Generator of the noise that a policy of chunks has in a deterministic episode, with a method of NumPy's generator."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(FIXED_SEED)

    def standard_normal(self, shape: Sequence[int], dtype: type[np.float32]) -> Array:
        """Return standard normal noise of the shape (R, H, A)."""
        draws, *chunk = shape
        rows = [torch.randn(chunk, generator=self._generator) for _ in range(draws)]
        return np.asarray(torch.stack(rows).numpy(), dtype)


def compare(policy: Policy, player: Any, episodes: Sequence[Sequence[Observation]]) -> tuple[float, int]:
    """Compare the actions of a policy and a runner on recorded observations.

    Args:
        policy: The policy; its deterministic actions are compared.
        player: ExportedPolicy of the file.
        episodes: Observations of each episode, in order.

    Returns:
        Largest difference, as a share of half of an element's range, and the number of observations.
    """
    action = policy.environment_spec.action
    half = 1.0 if action.is_discrete else 0.5 * (np.asarray(action.high) - np.asarray(action.low))
    differences = []
    for episode in episodes:
        policy.reset()
        player.reset()
        player.random = PolicyNoise()
        for observation in episode:
            wanted = action.to_physical(policy.act(observation, deterministic=True))
            differences.append(float(np.max(np.abs(np.asarray(player.act(observation)) - wanted) / half)))
    return max(differences), len(differences)


def _latency(reset: Callable[[], None], act: Callable[[Observation], Any], observations: Sequence[Observation]) -> Latency:
    times = []
    for call in range(TIMED_CALLS):
        reset()
        start = time.perf_counter()
        act(observations[call % len(observations)])
        times.append(1_000.0 * (time.perf_counter() - start))
    warm = times[TIMED_CALLS // 10 :]
    return Latency(float(np.median(warm)), float(np.percentile(warm, 99)))


def random_episodes(spec: EnvironmentSpec, episodes: int = 4, steps: int = 16, seed: int = 0) -> list[list[Observation]]:
    """Draw random observations for each of several episodes, to try an exported policy.

    Numbers are uniform between the limits of an entry, standard normal if it has none.

    Returns:
        For each episode its observations, in order.
    """
    generator = np.random.default_rng(seed)
    return [[_random(spec, generator) for _ in range(steps)] for _ in range(episodes)]


def _random(spec: EnvironmentSpec, generator: np.random.Generator) -> Observation:
    found: dict[str, Array] = {}
    for name, array in spec.observation.visible.items():
        low, high = (np.broadcast_to(np.asarray(limit, np.float64), array.shape) for limit in (array.low, array.high))
        is_limited = np.isfinite(low) & np.isfinite(high)
        bounds = np.where(is_limited, low, 0.0), np.where(is_limited, high, 1.0)
        drawn = np.where(is_limited, generator.uniform(*bounds), generator.normal(size=array.shape))
        found[name] = np.asarray(drawn if np.dtype(array.dtype).kind == "f" else np.round(drawn), array.dtype)
    return found
