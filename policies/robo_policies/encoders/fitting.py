"""Fit an encoder to pictures of a simulator: episodes of its expert and of random actions, objects and goals as targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from robo_policies.encoders.fitted import PoseNetwork, save
from robo_policies.learners.parts import CheckedAdam
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import specification

HELD_OUT = 0.1
"""Share of episodes that only measure the error."""
EXPLORATION = 0.3
"""Standard deviation of the noise in the expert's actions."""
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Frames:
    """Pictures and targets of N steps."""

    pictures: dict[str, npt.NDArray[np.uint8]]
    """name -> (N, H, W, C)"""
    targets: npt.NDArray[np.float32]
    """(N, T)"""
    names: tuple[str, ...]
    """of the T targets, "object_position[0]" and so on"""
    units: tuple[str, ...]
    episodes: npt.NDArray[np.int64]
    """(N,) number of the episode of each step"""


@dataclass(frozen=True)
class FitReport:
    """Errors of a fitted encoder on episodes that were held out."""

    errors: dict[str, dict[str, float]]
    """camera -> target -> root mean square error, in the target's unit"""
    guesses: dict[str, float]
    """target -> the same error of the mean: that of an encoder that sees nothing"""
    units: dict[str, str]


def collect(environment: gymnasium.Env[Any, Any], frames: int, seed: int) -> Frames:
    """Return `frames` steps of episodes by turns of the scripted expert, with noise, and of random actions.

    Raises InvalidSetting if the environment has no pictures, or no entries of objects or goals to learn from.
    """
    spec = specification(environment)
    cameras = tuple(spec.observation.subset("image"))
    wanted = [array for array in spec.observation.arrays if array.role in ("object", "goal") and array.dtype == "float32"]
    if not cameras or not wanted:
        raise InvalidSetting(
            f"An encoder cannot be fitted to {spec.name!r}.",
            got=f"pictures: {', '.join(cameras) or 'none'}; objects and goals: {', '.join(a.name for a in wanted) or 'none'}",
            allowed="pictures, and entries of role object or goal as their targets",
            fix="set cameras=[front,wrist], and leave sees out: it hides the targets",
        )
    names = tuple(f"{array.name}[{index}]" for array in wanted for index in range(array.size))
    units = tuple(array.unit for array in wanted for _ in range(array.size))
    steps = list(_steps(environment, frames, seed))
    return Frames(
        pictures={name: np.stack([observation[name] for _, observation in steps]) for name in cameras},
        targets=np.stack([np.concatenate([o[array.name].ravel() for array in wanted]) for _, o in steps]).astype(np.float32),
        names=names,
        units=units,
        episodes=np.array([episode for episode, _ in steps]),
    )


def _steps(environment: gymnasium.Env[Any, Any], frames: int, seed: int) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield (episode, observation)."""
    random = np.random.default_rng(seed)
    make_expert = getattr(environment.unwrapped, "scripted_policy", None)
    episode = count = 0
    while count < frames:
        observation, _ = environment.reset(seed=int(random.integers(2**31)))
        expert = make_expert(seed=episode, noise=EXPLORATION) if make_expert and episode % 2 == 0 else None
        done, held = False, environment.action_space.sample() * 0
        while not done and count < frames:
            yield episode, observation
            count += 1
            if expert is not None:
                action = expert.act(observation)
            else:  # random walk: single random actions would leave the hand in place
                held = np.clip(0.8 * held + 0.6 * random.standard_normal(held.shape), -1, 1).astype(np.float32)
                action = held
            observation, _, terminated, truncated, _ = environment.step(action)
            done = terminated or truncated
        episode += 1


def fit(
    frames: Frames,
    folder: Path,
    *,
    steps: int = 3_000,
    batch_size: int = 128,
    lr: float = 1e-3,
    seed: int = 0,
    facts: dict[str, Any] | None = None,
    progress: Callable[[str, int, float], None] = lambda name, step, loss: None,
) -> FitReport:
    """Fit one network to each camera by the squared error of standardised targets, and write the encoder to a folder."""
    generator = torch.Generator().manual_seed(seed)
    is_held_out = np.isin(frames.episodes, np.unique(frames.episodes)[:: round(1 / HELD_OUT)])
    learnt = frames.targets[~is_held_out]
    mean, std = learnt.mean(0), np.maximum(learnt.std(0), 1e-6)
    targets = torch.from_numpy((frames.targets - mean) / std)
    networks, errors = {}, {}
    for name, pictures in frames.pictures.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = PoseNetwork(pictures.shape[1:], len(mean))
        optimizer = CheckedAdam(f"{name} encoder loss", network, lr)
        seen, rows = torch.from_numpy(pictures), torch.from_numpy(np.flatnonzero(~is_held_out))
        for step in range(steps):
            chosen = rows[torch.randint(len(rows), (batch_size,), generator=generator)]
            loss = functional.mse_loss(network(seen[chosen])[1], targets[chosen])
            optimizer.lr = lr * (1 + math.cos(math.pi * step / steps)) / 2
            optimizer.minimize(loss, step)
            progress(name, step + 1, loss.item())
        with torch.no_grad():
            estimated = torch.cat([network(part)[1] for part in seen[torch.from_numpy(is_held_out)].split(512)])
        found = (estimated - targets[torch.from_numpy(is_held_out)]).square().mean(0).sqrt().numpy() * std
        networks[name], errors[name] = network, dict(zip(frames.names, found.tolist(), strict=True))
    guesses = np.sqrt(np.square(frames.targets[is_held_out] - mean).mean(0))
    report = FitReport(
        errors, dict(zip(frames.names, guesses.tolist(), strict=True)), dict(zip(frames.names, frames.units, strict=True))
    )
    described = {
        "names": frames.names,
        "mean": mean.tolist(),
        "std": std.tolist(),
        "errors": errors,
        "frames": len(frames.targets),
    }
    save(folder, networks, {name: pictures.shape[1:] for name, pictures in frames.pictures.items()}, described | (facts or {}))
    return report
