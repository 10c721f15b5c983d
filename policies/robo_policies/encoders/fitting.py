"""Fitting of an encoder to pictures of a simulator: objects and goals are its targets, as the observation has them.

Frames come from whole episodes of the scripted expert, with noise, and the first steps of episodes of random actions. N steps,
T targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from robo_policies.encoders.fitted import KeypointNetwork, save_encoder
from robo_policies.encoders.settings import EncoderFit
from robo_policies.learners.parts import CheckedAdam
from robo_policies.networks.settings import resolve_device
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import Observation, specification

HELD_OUT = 9
"""One in as many episodes only measures errors; no multiple of 2, so that the expert has its share in them."""
EXPLORATION = 0.3
"""Standard deviation of the noise in the expert's actions."""
RANDOM_EPISODES = 3
"""For each of the expert's: each reset shows objects and goals at new places."""
RANDOM_STEPS = 10
"""Most steps of an episode of random actions."""
PERSISTENCE = 0.8
"""Of random actions: independent ones would leave the hand in place."""
LARGEST_BATCH = 512
"""Pictures encoded at once on held-out episodes."""
Progress = Callable[[Sequence[int], str], Iterable[int]]


@dataclass(frozen=True)
class Frames:
    """Pictures and targets of N steps."""

    pictures: Mapping[str, npt.NDArray[np.uint8]]
    """name -> (N, H, W, C)"""
    targets: npt.NDArray[np.float32]
    """(N, T)"""
    units: Mapping[str, str]
    """Name of each of the T targets, such as object_position[0] -> its unit."""
    episodes: npt.NDArray[np.int64]
    """(N,) number of each step's episode"""


@dataclass(frozen=True)
class TargetError:
    """Root mean square errors of one target on held-out episodes, in its unit."""

    target: str
    unit: str
    blind: float
    """Error of the mean of the other episodes."""
    cameras: dict[str, float]

    def line(self) -> str:
        """Return a row of the report."""
        errors = "  ".join(f"{name} {error:.4f}" for name, error in self.cameras.items())
        return f"{self.target:28} [{self.unit}]  {errors}  (the mean alone: {self.blind:.4f})"


def collect(environment: gymnasium.Env[Any, Any], settings: EncoderFit, progress: Progress) -> Frames:
    """Return steps of expert's and random episodes; raises InvalidSetting if there are no pictures or no targets."""
    spec = specification(environment)
    cameras = tuple(spec.observation.subset("image"))
    wanted = [array for array in spec.observation.arrays if array.role in ("object", "goal") and array.dtype == "float32"]
    if not cameras or not wanted:
        targets = ", ".join(array.name for array in wanted) or "none"
        raise InvalidSetting(
            f"An encoder cannot be fitted to {spec.name!r}.",
            got=f"pictures: {', '.join(cameras) or 'none'}; objects and goals: {targets}",
            allowed="pictures, and entries of role object or goal as their targets",
            fix="set cameras, such as [front,wrist], and leave sees out, which hides the targets",
        )
    steps, kept = _steps(environment, settings.seed), []
    for _ in progress(range(settings.frames), "frames"):
        kept.append(next(steps))
    observations = [observation for _, observation in kept]
    rows = [np.concatenate([observation[array.name].ravel() for array in wanted]) for observation in observations]
    return Frames(
        pictures={name: np.stack([observation[name] for observation in observations]) for name in cameras},
        targets=np.stack(rows).astype(np.float32),
        units={f"{array.name}[{index}]": array.unit for array in wanted for index in range(array.size)},
        episodes=np.array([episode for episode, _ in kept]),
    )


def _steps(environment: gymnasium.Env[Any, Any], seed: int) -> Iterator[tuple[int, Observation]]:
    """Yield the episode's number and an observation, without end."""
    random = np.random.default_rng(seed)
    has_expert = environment.has_wrapper_attr("scripted_policy")
    episode = 0
    while True:
        observation, _ = environment.reset(seed=int(random.integers(2**31)))
        expert = None
        if has_expert and episode % (1 + RANDOM_EPISODES) == 0:
            expert = environment.get_wrapper_attr("scripted_policy")(seed=episode, noise=EXPLORATION)
        done, action, left = False, np.zeros(specification(environment).action.shape, np.float32), RANDOM_STEPS
        while not done and (expert or left):
            yield episode, observation
            left -= 1
            drawn = random.standard_normal(action.shape) * (1 - PERSISTENCE**2) ** 0.5
            action = np.clip(PERSISTENCE * action + drawn, -1, 1).astype(np.float32)
            observation, _, terminated, truncated, _ = environment.step(expert.act(observation) if expert else action)
            done = terminated or truncated
        episode += 1


def fit_encoder(
    frames: Frames, folder: Path, settings: EncoderFit, facts: Mapping[str, Any], progress: Progress
) -> list[TargetError]:
    """Fit one network to each camera by the squared error of standardised targets, and write the encoder to a folder.

    facts: entries of its description, such as the environment.
    """
    device = resolve_device(settings.device)
    is_held_out = torch.from_numpy(np.isin(frames.episodes, np.unique(frames.episodes)[1::HELD_OUT]))
    learnt = frames.targets[~is_held_out.numpy()]
    mean, std = learnt.mean(0), np.maximum(learnt.std(0), 1e-6)
    targets = torch.from_numpy((frames.targets - mean) / std).to(device)
    networks: dict[str, tuple[KeypointNetwork, tuple[int, ...]]] = {}
    errors: dict[str, list[float]] = {}
    for name, pictures in frames.pictures.items():
        shape, seen = pictures.shape[1:], torch.from_numpy(pictures).to(device)
        network = _fitted(shape, seen, targets, (~is_held_out).nonzero().ravel(), settings, progress, name)
        with torch.no_grad():
            estimates = torch.cat([network(part)[1] for part in seen[is_held_out].split(LARGEST_BATCH)])
        deviation = (estimates - targets[is_held_out]).square().mean(0).sqrt().cpu().numpy()
        networks[name], errors[name] = (network.cpu(), shape), (deviation * std).tolist()
    blind = np.sqrt(np.square(frames.targets[is_held_out.numpy()] - mean).mean(0)).tolist()
    report = [
        TargetError(target, unit, blind[index], {name: each[index] for name, each in errors.items()})
        for index, (target, unit) in enumerate(frames.units.items())
    ]
    scale = {"mean": mean.tolist(), "std": std.tolist(), "errors": errors, "frames": len(frames.targets)}
    save_encoder(folder, networks, {"target_units": dict(frames.units), **scale, **facts})
    return report


def _fitted(
    shape: tuple[int, ...],
    pictures: torch.Tensor,
    targets: torch.Tensor,
    rows: torch.Tensor,
    settings: EncoderFit,
    progress: Progress,
    name: str,
) -> KeypointNetwork:
    """Return the network of one camera."""
    generator = torch.Generator().manual_seed(settings.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = KeypointNetwork(shape, targets.shape[1]).to(targets.device)
    optimizer = CheckedAdam(f"encoder loss of {name}", network, settings.lr)
    for update in progress(range(settings.updates), name):
        chosen = rows[torch.randint(len(rows), (settings.batch_size,), generator=generator)].to(targets.device)
        optimizer.lr = settings.lr * (1 + math.cos(math.pi * update / settings.updates)) / 2
        optimizer.minimize(functional.mse_loss(network(pictures[chosen])[1], targets[chosen]), update)
    return network
