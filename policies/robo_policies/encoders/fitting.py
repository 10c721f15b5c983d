"""Fitting of an encoder to pictures of a simulator; its targets are the entries of objects and goals of the observation.

Frames come from whole episodes of the scripted expert, with noise, and the first steps of episodes of random actions. N steps,
T targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from robo_policies.encoders.fitted import network_for, save_encoder
from robo_policies.encoders.settings import EncoderFit
from robo_rl.environments import stepping
from robo_rl.errors import InvalidSetting
from robo_rl.fitting import fit, resolve_device
from robo_rl.spec.environment import Observation, specification

HELD_OUT = 9
"""One of this number of episodes is held out to measure errors; odd, so that episodes of the expert are among them."""
EXPLORATION = 0.3
"""Standard deviation of the noise in the expert's actions, which lie in [-1, 1]."""
RANDOM_EPISODES = 3
"""Episodes of random actions for each episode of the expert; each reset shows objects and goals at new positions."""
RANDOM_STEPS = 10
"""Largest number of steps of an episode of random actions."""
PERSISTENCE = 0.8
"""Correlation of successive random actions; independent ones would hardly move the hand."""
LEAST_DEVIATION = 1e-6
LARGEST_BATCH = 512
"""Largest number of pictures encoded at once on held-out episodes."""
Progress = Callable[[Sequence[int], str], Iterable[int]]


@dataclass(frozen=True)
class Frames:
    """Recorded data to which an encoder is fitted: observations and targets of N steps."""

    observations: Mapping[str, npt.NDArray[Any]]
    """Pictures and vectors (N, ...) by name."""
    cameras: Mapping[str, tuple[int, ...]]
    """Shape (height, width, channels) of each picture by name."""
    vectors: Mapping[str, tuple[int, ...]]
    """Shape of each vector of proprioception by name."""
    targets: npt.NDArray[np.float32]
    """Targets (N, T), not standardised, in the units of `units`."""
    units: Mapping[str, str]
    """Name of each of the T targets, such as object_position[0] -> unit of the target."""
    episodes: npt.NDArray[np.int64]
    """Number of the episode of each step (N,)."""


@dataclass(frozen=True)
class TargetError:
    """Error of one estimated target on held-out episodes: root mean square, in the unit of the target."""

    target: str
    unit: str
    error: float
    blind: float
    """Error of a constant estimate, the mean over the other episodes, in the unit of the target, for comparison."""

    def line(self) -> str:
        """Return the error as a line of text for the report."""
        return f"{self.target:28} {self.error:.4f} {self.unit}  (the mean alone: {self.blind:.4f})"


def collect(environment: gymnasium.Env[Any, Any], settings: EncoderFit, progress: Progress) -> Frames:
    """Record steps of episodes of the scripted expert and of random actions.

    Args:
        environment: Environment with pictures, and with entries of role object or goal.
        settings: Settings of the fit; `frames` and `seed` are read.
        progress: Wraps the range of step numbers to show a progress bar.

    Raises:
        InvalidSetting: The environment has no pictures, or no entries of objects and goals.
    """
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
    seen = [observation for _, observation in kept]
    rows = [np.concatenate([observation[array.name].ravel() for array in wanted]) for observation in seen]
    pictures, vectors = spec.observation.subset("image"), spec.observation.subset("proprioception")
    return Frames(
        observations={name: np.stack([observation[name] for observation in seen]) for name in (*pictures, *vectors)},
        cameras={name: array.shape for name, array in pictures.items()},
        vectors={name: array.shape for name, array in vectors.items()},
        targets=np.stack(rows).astype(np.float32),
        units={f"{array.name}[{index}]": array.unit for array in wanted for index in range(array.size)},
        episodes=np.array([episode for episode, _ in kept]),
    )


def _steps(environment: gymnasium.Env[Any, Any], seed: int) -> Iterator[tuple[int, Observation]]:
    """Yield (number of the episode, observation) of each step, without end."""
    random, spec = np.random.default_rng(seed), specification(environment)
    has_expert = environment.has_wrapper_attr("scripted_policy")
    episode = 0
    while True:
        observation, _ = stepping.reset(environment, spec.name, seed=int(random.integers(2**31)))
        expert = None
        if has_expert and episode % (1 + RANDOM_EPISODES) == 0:
            expert = environment.get_wrapper_attr("scripted_policy")(seed=episode, noise=EXPLORATION)
        done, action, left = False, np.zeros(spec.action.shape, np.float32), RANDOM_STEPS
        while not done and (expert or left):
            yield episode, observation
            left -= 1
            drawn = random.standard_normal(action.shape) * (1 - PERSISTENCE**2) ** 0.5
            action = np.clip(PERSISTENCE * action + drawn, -1, 1).astype(np.float32)
            chosen = expert.act(observation) if expert else action
            observation, _, terminated, truncated, _ = stepping.step(environment, spec.name, chosen)
            done = terminated or truncated
        episode += 1


def fit_encoder(
    frames: Frames, folder: Path, settings: EncoderFit, facts: Mapping[str, Any], progress: Progress
) -> list[TargetError]:
    """Train a network to estimate the targets by the squared error, and write the encoder to a folder.

    Args:
        frames: Recorded steps.
        folder: Folder that is written.
        settings: Settings of the fit.
        facts: Further entries of the description, such as the name of the environment.
        progress: Wraps the range of update numbers to show a progress bar.

    Returns:
        Error of each target on the held-out episodes.
    """
    device = resolve_device(settings.device)
    is_held_out = np.isin(frames.episodes, np.unique(frames.episodes)[1::HELD_OUT])
    learnt = frames.targets[~is_held_out]
    mean, std = learnt.mean(0), np.maximum(learnt.std(0), LEAST_DEVIATION)
    targets = torch.from_numpy((frames.targets - mean) / std).to(device)
    pictures = {name: torch.from_numpy(frames.observations[name]).to(device) for name in frames.cameras}
    columns = [frames.observations[name].reshape(len(frames.targets), -1) for name in frames.vectors]
    vectors = torch.from_numpy(np.concatenate([*columns, frames.targets[:, :0]], 1).astype(np.float32)).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = network_for(frames.cameras, frames.vectors, len(mean)).to(device)
    held_out, rows = (torch.from_numpy(np.flatnonzero(chosen)) for chosen in (is_held_out, ~is_held_out))
    network.mean, network.std = vectors[rows].mean(0), vectors[rows].std(0).clamp(min=LEAST_DEVIATION)
    optimizer, generator = (
        torch.optim.Adam(network.parameters(), settings.lr, fused=True),
        torch.Generator().manual_seed(settings.seed),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: (1 + math.cos(math.pi * done / settings.updates)) / 2)
    generator = torch.Generator().manual_seed(settings.seed)

    def loss(chosen: torch.Tensor) -> torch.Tensor:
        estimates = network({name: picture[chosen] for name, picture in pictures.items()}, vectors[chosen])[1]
        return functional.mse_loss(estimates, targets[chosen])

    numbers = progress(range(settings.updates), "updates")
    draws = (torch.randint(len(rows), (settings.batch_size,), generator=generator) for _ in numbers)
    batches = (rows[drawn].to(device) for drawn in draws)
    fit(network, batches, loss, optimizer, title="encoder", after=lambda _: schedule.step())
    squares = torch.zeros(len(mean), device=device)
    with torch.no_grad():
        for part in held_out.split(LARGEST_BATCH):
            estimates = network({name: picture[part] for name, picture in pictures.items()}, vectors[part])[1]
            squares += (estimates - targets[part]).square().sum(0)
    errors = (squares / len(held_out)).sqrt().cpu().numpy() * std
    blind = np.sqrt(np.square(frames.targets[is_held_out] - mean).mean(0))
    report = [
        TargetError(target, unit, float(errors[index]), float(blind[index]))
        for index, (target, unit) in enumerate(frames.units.items())
    ]
    description = {
        "cameras": frames.cameras,
        "vectors": frames.vectors,
        "targets": len(mean),
        "mean": mean.tolist(),
        "std": std.tolist(),
        "errors": [asdict(error) for error in report],
        "frames": len(frames.targets),
        "settings": asdict(settings),
    }
    save_encoder(folder, network.cpu(), description | dict(facts))
    return report
