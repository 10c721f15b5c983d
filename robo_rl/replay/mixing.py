"""Two memories sampled as one: recordings with a person's corrections, or a fixed mix of online and offline data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.protocols.sampling import Memory, Sampler
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.rows import spread
from robo_rl.spec.environment import Observation
from robo_rl.types import ActionSource, Batch, StateDict, Transition, VectorTransition


class CorrectedReplay(Stateful):
    """Replay memory of recorded episodes and of later steps that a person chose, sampled as one."""

    def __init__(self, recorded: Memory, corrections: ReplayBuffer, seed: int) -> None:
        self.recorded, self.corrections = recorded, corrections
        self._generator = np.random.default_rng([seed, 0])

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        return len(self.recorded) + len(self.corrections)

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99) -> Batch:
        """Return `batch_size` transitions drawn uniformly from the union of both memories, in random order."""
        is_corrected = self._generator.random(batch_size) * len(self) < len(self.corrections)
        corrected = int(is_corrected.sum())
        if corrected == 0:
            return self.recorded.sample(batch_size, n_step, discount)
        corrections = self.corrections.sample(corrected, n_step, discount)
        if corrected == batch_size:
            return corrections
        return _interleave(self.recorded.sample(batch_size - corrected, n_step, discount), corrections, is_corrected)

    @override
    def state_dict(self) -> StateDict:
        memories = {"recorded": self.recorded.state_dict(), "corrections": self.corrections.state_dict()}
        return memories | {"generator": self._generator.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.recorded.load_state_dict(state["recorded"])
        self.corrections.load_state_dict(state["corrections"])
        self._generator.bit_generator.state = state["generator"]


@dataclass(frozen=True)
class BothMemories:
    """Replay memory that stores all steps in one memory, and those that a person chose also in a second one.

    With several environments only the steps of environment 0 are corrected, because the person supervises that one.
    """

    online: ReplayBuffer
    """Replay memory in which all steps are stored."""
    corrections: ReplayBuffer
    """Second memory, in which the steps that a person chose are stored, too."""

    def is_running(self, place: int = 0) -> bool:
        """Return True from `begin` to the end of the episode of environment `place`."""
        return self.online.is_running(place)

    def begin(self, observation: Observation, place: int = 0) -> None:
        """Begin an episode of environment `place` in the memory."""
        if place == 0:
            self.corrections.cut()
        self.online.begin(observation, place)

    def add(self, transition: Transition, place: int = 0) -> None:
        """Store the next step of environment `place`; a human action in environment 0 also in `corrections`."""
        self.online.add(transition, place)
        if place == 0:
            self._correct(transition)

    def add_all(self, steps: VectorTransition) -> None:
        """Store a step of each environment; a person's step in environment 0 also in `corrections`."""
        self.online.add_all(steps)
        if steps.diverged[0]:
            self.corrections.cut()
        else:
            self._correct(steps.transition(0))

    def cut(self, place: int = 0) -> None:
        """End the running episode of environment `place`."""
        self.online.cut(place)
        if place == 0:
            self.corrections.cut()

    def _correct(self, transition: Transition) -> None:
        if transition.source != ActionSource.HUMAN:
            self.corrections.cut()
            return
        if not self.corrections.is_running():
            self.corrections.begin(transition.observation)
        self.corrections.add(transition)


@dataclass(frozen=True)
class SymmetricReplay(Stateful):
    """Replay memory that mixes online and offline transitions in every batch (Ball et al. 2023, arXiv:2302.02948, section 4.1).

    The two kinds alternate evenly: any contiguous slice of a batch has the same mix to within one transition, so that a large
    batch may be cut into several. Of B transitions floor(fraction * B) are offline.
    """

    online: Memory
    offline: Memory
    fraction: float = 0.5
    """Share of offline transitions, above 0 and below 1."""

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction < 1.0:
            raise InvalidSetting("The offline fraction is out of range.", got=self.fraction, allowed="between 0 and 1")
        if not len(self.offline):
            raise InvalidSetting(
                "Training with offline data needs recorded episodes, and there are none.",
                got="0 offline transitions",
                allowed="1 or more",
                fix="record demonstrations and name them in the recipe, or use a learner without offline data such as sac",
            )

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99) -> Batch:
        """Return `batch_size` transitions, offline ones spread evenly among online ones."""
        is_offline = spread(batch_size, self.fraction)
        total = int(is_offline.sum())
        online = self.online.sample(batch_size - total, n_step, discount)
        if total == 0:
            return online
        offline = self.offline.sample(total, n_step, discount)
        return _interleave(online, offline, is_offline)

    @override
    def state_dict(self) -> StateDict:
        return {"online": self.online.state_dict(), "offline": self.offline.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.online.load_state_dict(state["online"])
        self.offline.load_state_dict(state["offline"])


@dataclass(frozen=True)
class WithImagined:
    """Source of batches in which a share of the real transitions is replaced by imagined ones, once there are any.

    The imagined ones are spread evenly over a batch.
    """

    real: Sampler
    imagined: Memory
    share: float

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99) -> Batch:
        """Return `batch_size` transitions; of them floor(share * batch_size) are imagined."""
        is_imagined = spread(batch_size, self.share if len(self.imagined) else 0.0)
        if not (total := int(is_imagined.sum())):
            return self.real.sample(batch_size, n_step, discount)
        imagined = self.imagined.sample(total, n_step, discount)
        return _interleave(self.real.sample(batch_size - total, n_step, discount), imagined, is_imagined)


def _interleave(online: Batch, offline: Batch, is_offline: npt.NDArray[np.bool_]) -> Batch:
    if online.extras.keys() != offline.extras.keys():
        names = [", ".join(sorted(batch.extras)) or "none" for batch in (online, offline)]
        raise InvalidSetting(
            "Two memories that are mixed have not the same extras.",
            got=f"{names[0]} and {names[1]}",
            allowed="the same in both",
            fix="make both memories with the extras of the learner's `sampling`",
        )
    # position k takes the next row of its own source: index into the two batches laid end to end
    order = np.where(is_offline, len(online) + np.cumsum(is_offline) - 1, np.cumsum(~is_offline) - 1)

    def mixed(a: Any, b: Any) -> Any:
        if isinstance(a, Mapping):
            return {name: mixed(value, b[name]) for name, value in a.items()}
        return np.concatenate((a, b))[order]

    return Batch(**{field.name: mixed(getattr(online, field.name), getattr(offline, field.name)) for field in fields(Batch)})
