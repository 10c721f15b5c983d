"""Feasible region of FISOR on a double integrator against its exact viability kernel, and rollouts of its policy.

python -m robo_papers.fisor.viability --seeds 3

The state is a position x [m] and a velocity v [m/s], |x| <= 1 is safe, the acceleration is at most 1 m/s^2. From x with
velocity v > 0 the nearest stop lies at x + v^2 / 2: the kernel is all from which that is at most 1, and the same to the left.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_papers.fisor.learner import FISOR, FISORConfig
from robo_rl.settings import updated
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Batch

Floats = npt.NDArray[np.float32]
PERIOD = 0.05
"""[s] control period of the double integrator."""
FASTEST, WIDEST = 1.6, 1.2
ROWS, STEPS = 60_000, 200
SPEC = EnvironmentSpec(
    "double-integrator",
    ObservationSpec((ArraySpec("state", (2,)), ArraySpec("clearance", (1,), unit="m", role="object"))),
    ActionSpec(("acceleration",), low=(-1.0,), high=(1.0,), units=("m/s^2",), mode="unknown", control_period=PERIOD),
    costs=(CostSpec("outside", 0.0),),
)
SETTINGS: dict[str, Any] = {"network": {"hidden": (128, 128), "normalization_rows": 0}, "lr": 1e-3}
CODINGS = {
    "+1 / -1": updated(FISORConfig(), SETTINGS),
    "+25 / -1": updated(FISORConfig(), SETTINGS, unsafe_signal=25.0),
    "distance": updated(FISORConfig(), SETTINGS, clearance="clearance"),
}


def moved(states: Floats, actions: Floats) -> Floats:
    """Return the states (B, 2) one period later, for states (B, 2) and actions (B,) or (B, 1)."""
    position, velocity = states.T
    following = velocity + PERIOD * actions[:, 0]
    return np.stack((position + PERIOD * (velocity + following) / 2, following), 1).astype(np.float32)


def observed(states: Floats) -> dict[str, Floats]:
    """Return the observations (B, ...) by name for states (B, 2)."""
    return {"state": states, "clearance": (1.0 - np.abs(states[:, :1])).astype(np.float32)}


def is_viable(states: Floats) -> npt.NDArray[np.bool_]:
    """Return for each state (B, 2) whether it lies in the exact viability kernel, (B,)."""
    position, velocity = states.T
    return np.asarray((np.abs(position + velocity * np.abs(velocity) / 2) <= 1.0) & (np.abs(position) <= 1.0))


def recorded(random: np.random.Generator) -> Batch:
    """Return single steps from random states, half of them braking, half random; being far to the right is paid."""
    states = random.uniform((-WIDEST, -FASTEST), (WIDEST, FASTEST), (ROWS, 2)).astype(np.float32)
    actions = random.uniform(-1.0, 1.0, (ROWS, 1)).astype(np.float32)
    brakes = random.random(ROWS) < 0.5
    actions[brakes, 0] = -np.sign(states[brakes, 1])
    following, ones, sources = moved(states, actions), np.ones(ROWS, np.float32), np.zeros(ROWS, np.int8)
    costs = (np.abs(following[:, :1]) > 1.0).astype(np.float32)
    rewards = following[:, 0].copy()
    return Batch(observed(states), actions, rewards, ones, 0.99 * ones, observed(following), ones, sources, {"costs": costs})


def rows_of(batch: Batch, rows: npt.NDArray[np.int64]) -> Batch:
    """Return some rows of a batch."""
    plain = ("actions", "rewards", "masks", "discounts", "weights", "sources")
    found: dict[str, Any] = {name: getattr(batch, name)[rows] for name in plain}
    for name in ("observations", "next_observations", "extras"):
        found[name] = {key: value[rows] for key, value in getattr(batch, name).items()}
    return Batch(**found)


def trained(config: FISORConfig, seed: int, updates: int, kind: type[FISOR] = FISOR) -> FISOR:
    """Return a FISOR learner after some updates from recorded steps."""
    random, learner = np.random.default_rng(seed), kind(SPEC, config, seed)
    data = recorded(random)
    for _ in range(updates):
        learner.update(rows_of(data, random.integers(ROWS, size=config.batch_size)))
    return learner


def agreement(learner: FISOR) -> tuple[float, float]:
    """Compare the learnt feasible region with the true viability kernel.

    Returns:
        The intersection over union of the two, and the share of the learnt region that lies outside the kernel.
    """
    axes = np.meshgrid(np.linspace(-WIDEST, WIDEST, 121), np.linspace(-FASTEST, FASTEST, 121))
    states = np.stack([axis.ravel() for axis in axes], 1).astype(np.float32)
    with torch.no_grad():
        features = learner.parts.encoder(torch.from_numpy(learner.parts.encoder.stack(observed(states))))
        found = (learner.danger_value(features)[0] <= 0).numpy()
    exact = is_viable(states)
    return float((found & exact).sum() / (found | exact).sum()), float((found & ~exact).sum() / max(found.sum(), 1))


def violations(learner: FISOR, seed: int, count: int = 50) -> tuple[int, float]:
    """Return how many rollouts of STEPS steps from viable states leave the safe set, and the mean reward of a step."""
    random, starts = np.random.default_rng([seed, 1]), np.zeros((0, 2), np.float32)
    while len(starts) < count:
        drawn = random.uniform((-1.0, -FASTEST), (1.0, FASTEST), (count, 2)).astype(np.float32)
        starts = np.concatenate((starts, drawn[is_viable(drawn)]))[:count]
    left, total, generator = np.zeros(count, np.bool_), 0.0, torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        with torch.no_grad():
            stacked = learner.parts.encoder.stack(observed(starts))
            actions = learner.actor.draw(learner.parts.encoder(torch.from_numpy(stacked)), generator)
        starts = moved(starts, actions.numpy())
        left |= np.abs(starts[:, 0]) > 1.0
        total += float(starts[:, 0].mean())
    return int(left.sum()), total / STEPS


class RewardAlone(FISOR):
    """Control condition: actions are weighted by the advantage alone, and the first drawn one is taken."""

    def weights(self, danger_value: torch.Tensor, danger: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        """Return weights (B,) that ignore danger."""
        return torch.exp(self.config.gain_weight * gain).clamp(max=100.0)


def main() -> None:
    """Run the study of this module as a command: print agreement and violations of each coding, and of a control."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=5_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    control = updated(FISORConfig(), SETTINGS, candidates=1)
    for name, config, kind in [(name, config, FISOR) for name, config in CODINGS.items()] + [
        ("reward alone", control, RewardAlone)
    ]:
        for seed in range(arguments.seeds):
            learner = trained(config, seed, arguments.updates, kind)
            overlap, wrong = agreement(learner)
            left, reward = violations(learner, seed)
            figures = f"IoU {overlap:.2f}  false-feasible {wrong:.1%}  violations {left} of 50  reward {reward:.2f}"
            print(f"{name:14} seed {seed}  {figures}", flush=True)


if __name__ == "__main__":
    main()
