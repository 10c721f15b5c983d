"""Step rewards that are learned from returns while a policy learns from them.

An episode that has ended is stored with its return. Its steps enter the learner's replay memory with their places in that store
for rewards, and every batch that is sampled gets the rewards that the decoder gives by then: none is ever kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, RewardUnavailable
from robo_rl.rewards.decomposition.decoder import Decoder, DecoderConfig
from robo_rl.rewards.decomposition.draws import Drawing, decomposition_loss
from robo_rl.rewards.decomposition.episodes import EpisodeMemory
from robo_rl.rewards.decomposition.inputs import Floats, StepInputs
from robo_rl.rewards.running import MOST_MISSING, RECENT
from robo_rl.spec import Observation
from robo_rl.types import Array, Batch, Labels, Metrics, StateDict, StepRewards

METRICS_EVERY = 100  # updates between two reports, as of learners


class RunningDecomposition:
    """Implements `robo_rl.reward_protocols.Relabelling` for one environment."""

    def __init__(self, inputs: StepInputs, drawing: Drawing, config: DecoderConfig, *, seed: int, weight: float) -> None:
        self._inputs, self._drawing, self._config, self._weight = inputs, drawing, config, weight
        self._generator = np.random.default_rng(seed)
        self.decoder = Decoder(inputs.size, config, seed)
        self._memory: EpisodeMemory | None = None
        self._observations: list[Observation] = []  # of the episode under way, from its first on
        self._actions: list[Array] = []
        self._total = 0.0
        self._scored: list[npt.NDArray[np.float32]] = []  # places of steps; NaN where there is none
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._losses: list[float] = []
        self._steps = self._missing = self._missing_in_a_row = 0

    def reserve(self, steps: int) -> None:
        """Keeps the newest `steps` steps: as many as the replay memory that they enter has rows."""
        self._memory = EpisodeMemory(self._inputs.size, steps)

    @property
    def memory(self) -> EpisodeMemory:
        """The episodes with their returns; raises InvalidSetting where none was reserved."""
        if self._memory is None:
            raise InvalidSetting("No memory was reserved for the episodes of a decomposition.", fix="call reserve(steps) first")
        return self._memory

    @property
    def is_due(self) -> bool:
        """False until the episode ends: before that nobody knows its return."""
        return False

    @property
    def metrics(self) -> Metrics:
        """What the decoder paid for recent episodes, each as it ended, and the share of steps that were left out."""
        found = {"reward/missing": self._missing / max(self._steps, 1)}
        return found | ({"reward/model_return": float(np.mean(self._returns))} if self._returns else {})

    def restart(self) -> None:
        """Forgets the episode under way."""
        self._observations, self._actions, self._total, self._scored = [], [], 0.0, []

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """An episode begins; the steps of one that did not end stay without a reward."""
        del index, instruction
        self._leave_out(len(self._actions))
        self._observations, self._actions, self._total = [observation], [], 0.0

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """A step was taken; `reward` counts in the return of the episode, and nowhere else."""
        del index
        self._observations.append(observation)
        self._actions.append(action)
        self._total += reward
        if terminated or truncated:
            self._store()

    def score(self) -> StepRewards:
        """Return the places of the steps; those whose episode has not ended have none."""
        if self._actions:  # asked in the middle of an episode, or where it was cut: no return will ever be that of its steps
            self._leave_out(len(self._actions))
            self._observations, self._actions, self._total = self._observations[-1:], [], np.nan
        places = np.concatenate([np.zeros(0, np.float32), *self._scored])
        self._scored = []
        return StepRewards(Labels.finite(places), np.zeros(len(places), np.bool_))

    def update(self) -> Metrics:
        """Takes one step of the decoder towards the returns of some episodes (`draws.decomposition_loss`)."""
        memory = self.memory
        if not len(memory):
            return {}
        kept = memory.draw(self._drawing.episodes(self._config.rows, memory.mean_length), self._generator)
        lengths = np.array([each.length for each in kept], np.int64)
        draw = self._drawing.draw(lengths, self._generator)
        inputs = memory.inputs(np.array([[each.start] for each in kept]) + draw.steps)
        mean_rewards = np.array([each.total / each.length for each in kept], np.float32)

        def gradient(rewards: Floats) -> tuple[float, Floats]:
            loss, by_rewards = decomposition_loss(rewards.reshape(draw.steps.shape), mean_rewards, draw)
            return loss, by_rewards.ravel()

        self._losses.append(self.decoder.descend(inputs.reshape(-1, inputs.shape[-1]), gradient))
        return self._report() if len(self._losses) == METRICS_EVERY else {}

    def relabel(self, batch: Batch) -> Batch:
        """Returns the batch with the rewards of the present decoder in the place of places."""
        inputs = self.memory.inputs(batch.rewards.astype(np.int64))
        return replace(batch, rewards=np.float32(self._weight) * self.decoder.rewards(inputs))

    def _store(self) -> None:
        """Stores the episode that has just ended, or leaves it out where a step or the return is not known."""
        observations = {name: np.stack([each[name] for each in self._observations]) for name in self._observations[0]}
        inputs = self._inputs.of(observations, np.stack(self._actions))
        if not (np.isfinite(self._total) and np.isfinite(inputs).all()):
            self._leave_out(len(inputs))
        else:
            self.decoder.observe(inputs, self._total / len(inputs))
            self._scored.append(self.memory.add(inputs, self._total).astype(np.float32))
            self._returns.append(self._weight * float(self.decoder.rewards(inputs).sum()))
            self._steps += len(inputs)
            self._missing_in_a_row = 0
        self._observations, self._actions, self._total = [], [], 0.0

    def _leave_out(self, steps: int) -> None:
        self._scored += [np.full(steps, np.nan, np.float32)] if steps else []
        self._steps += steps
        self._missing += steps
        self._missing_in_a_row += steps
        if self._missing_in_a_row >= MOST_MISSING:
            raise RewardUnavailable(
                f"No episode of the last {self._missing_in_a_row} steps could be decomposed.",
                got=f"{self._missing} of {self._steps} steps left out",
                allowed=f"less than {MOST_MISSING} in a row",
                fix="look at the returns of the environment, and at what the program makes of its states, then resume the run",
            )

    def _report(self) -> Metrics:
        mean, self._losses = float(np.mean(self._losses)), []
        return {"reward/decomposition_loss": mean}

    def state_dict(self) -> StateDict:
        """Returns the episodes, the decoder, what is known of the episode under way, and the generator."""
        under_way = self._observations
        observations = {name: np.stack([each[name] for each in under_way]) for name in under_way[0]} if under_way else {}
        return {
            "memory": self.memory.state_dict(),
            "decoder": self.decoder.state_dict(),
            "generator": self._generator.bit_generator.state,
            "observations": observations,
            "actions": np.stack(self._actions) if self._actions else np.zeros(0, np.float32),
            "total": self._total,
            "scored": {str(at): each for at, each in enumerate(self._scored)},
            "returns": list(self._returns),
            "losses": list(self._losses),
            "counts": [self._steps, self._missing, self._missing_in_a_row],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned, for a replay memory of the same capacity."""
        self.memory.load_state_dict(state["memory"])
        self.decoder.load_state_dict(state["decoder"])
        self._generator.bit_generator.state = state["generator"]
        self._actions = list(state["actions"])
        self._observations = _steps_of(state["observations"])
        self._total = float(state["total"])
        self._scored = list(state["scored"].values())
        self._returns.extend(state["returns"])
        self._losses = list(state["losses"])
        self._steps, self._missing, self._missing_in_a_row = state["counts"]


def _steps_of(observations: Mapping[str, Array]) -> list[Observation]:
    count = len(next(iter(observations.values()))) if observations else 0
    return [{name: values[step] for name, values in observations.items()} for step in range(count)]
