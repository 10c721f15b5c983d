"""Human demonstrations of Adroit's door, replayed from their initial states in our environment.

The observations in the file are of another version of the simulated model. So the recorded actions are executed again in our
environment, and the observations that follow are stored: a policy will get the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium
import numpy as np

from robo_datasets.atomic_write import atomic_write
from robo_datasets.dataset import Dataset
from robo_datasets.figures import figures_of
from robo_datasets.public.demonstrations import Demonstration, read_demonstrations, require_finite
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetError
from robo_rl.evaluation.evaluation import evaluation_seeds
from robo_rl.rollout.episode import RandomPolicy, Rollout, rollout
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import ActionSource, Array, Episode

ENVIRONMENT = "gymnasium_robotics/AdroitHandDoorSparse-v1"
STATE = "init_state_dict/"
ARRAYS = ("actions", "observations", "rewards", f"{STATE}door_body_pos", f"{STATE}qpos", f"{STATE}qvel")
HINGE = 28
"""column of the door's angle in the file's observations"""
OPEN = 1.35
"""[rad] angle from which on the door counts as open"""
CHANCE = 10
"""number of episodes with random actions, for the reference scores"""


class Played:
    """Policy and supervisor of a replay: proposes the recorded actions, and executes them clipped, as the original did."""

    def __init__(self, spec: EnvironmentSpec, actions: Array) -> None:
        self.environment_spec, self._actions = spec, actions.astype(np.float32)
        self._step = 0

    def reset(self) -> None:
        """Start with the first action. It is called twice per episode, because this object is policy and supervisor."""
        self._step = 0

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the next recorded action (A,), which may lie outside [-1, 1]."""
        self._step += 1
        return np.asarray(self._actions[self._step - 1])

    def override(self, observation: Observation, proposed: Array) -> tuple[Array, ActionSource]:
        """Return the action (A,), clipped to [-1, 1], and "person" as its source, since a person demonstrated it."""
        return np.clip(proposed, -1.0, 1.0), ActionSource.HUMAN


def convert(source: Path, out: Path, card: Mapping[str, Any]) -> list[str]:
    """Replay the demonstrations of a file, and store the replays as a dataset.

    Args:
        source: File of the demonstrations.
        out: Folder of the new dataset.
        card: Further entries of the dataset's card.

    Returns:
        Remarks for the user.

    Raises:
        DatasetError: The file has no demonstrations, or the dataset cannot be written.
        MissingExtra: The simulator is not installed.
    """
    try:
        demonstrations = read_demonstrations(source, ARRAYS)
    except ValueError as error:
        raise DatasetError(f"{source} holds no demonstrations.", got=error) from None
    require_finite(demonstrations, source)
    arguments: dict[str, Any] = {"max_steps": max(len(each["actions"]) for each in demonstrations)}
    with closing(make_environment(ENVIRONMENT, **arguments)) as environment, atomic_write(out) as draft:
        described = {"environment": ENVIRONMENT, "arguments": arguments, **card}
        dataset = Dataset.create(draft, specification(environment), described)
        with dataset.writer() as writer:
            for number, each in enumerate(demonstrations):
                identity = hashlib.sha256(f"{card} {number}".encode()).hexdigest()[:32]
                writer.add(_replayed(environment, each, number), identity=identity)
        notes, figures = _notes(demonstrations, dataset), figures_of(dataset.entries())
        reference = _reference(environment, figures)
        dataset.describe(described | {"reference": reference} | figures | {"remarks": notes})
    return notes


def _reference(environment: gymnasium.Env[Any, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference scores of the card: the mean return of random actions, and that of the person."""
    spec, seeds = specification(environment), evaluation_seeds(CHANCE)
    played = [rollout(environment, RandomPolicy(spec, seed), seed=seed) for seed in seeds]
    return {
        "random": fmean(episode.undiscounted_return for episode in played),
        "expert": figures["return"]["mean"],
        "success": {"random": fmean(bool(episode.success) for episode in played), "expert": figures["success"]},
        "actors": {"random": "random", "expert": "human"},
        "episodes": CHANCE,
        "seeds": [seeds[0], seeds[-1]],
    }


def _replayed(environment: gymnasium.Env[Any, Any], demonstration: Demonstration, number: int) -> Episode:
    """Replay the actions of one demonstration from its initial state; the episode ends with the last action.

    number: number of the demonstration, used as the seed.
    """
    state = {name.removeprefix(STATE): values for name, values in demonstration.items() if name.startswith(STATE)}
    environment.get_wrapper_attr("simulation").start_from(state)
    played = Played(specification(environment), demonstration["actions"])
    replay = Rollout(environment, played, seed=number, supervisor=played)
    while not replay.done:
        replay.step()
        if len(replay) == len(demonstration["actions"]) and not replay.done:
            replay.cut("end of the demonstration")
    episode = replay.episode()
    period = played.environment_spec.action.control_period or 1.0
    times = np.arange(len(episode) + 1, dtype=np.float64) * period  # the same in each replay
    return replace(episode, timestamps=times, metadata={**episode.metadata, "source": "human"})


def _notes(demonstrations: Sequence[Demonstration], dataset: Dataset) -> list[str]:
    """Return remarks on clipped actions, success, and the difference between the replays and the file."""
    apart = []
    for each, episode in zip(demonstrations, dataset, strict=True):
        there, here = each["observations"][:, HINGE], episode.observations["door_position"][:, 0]
        apart.append(np.abs(there - here[: len(there)]).max())
    beyond = fmean(float((np.abs(each["actions"]) > 1).any(axis=1).mean()) for each in demonstrations)
    reached = sum(bool(entry.success) for entry in dataset.entries())
    count = len(demonstrations)
    in_file = sum(bool(each["observations"][:, HINGE].max() >= OPEN) for each in demonstrations)
    middle, worst = np.median(apart), max(apart)
    return [
        f"actions lie beyond [-1, 1] in {beyond:.0%} of the steps: executed clipped, as their source did; kept as proposed",
        f"the door opens by {OPEN} rad in {reached} of {count} replays, and in {in_file} of the file's own observations",
        f"angle of the door, replay minus file: at most {middle:.3f} rad in the median, {worst:.3f} in the worst",
        "rewards are those of this environment: 10 where the door is open, else -0.1",
    ]
