"""The contract between learners and training loops: features, support by each loop, needs of a learner.

`robo_rl.training.compatibility` compares a recipe with both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class Feature(Enum):
    """Feature of a recipe: (column of the table, its meaning, the setting that requests it)."""

    PERSON = "person", "a person who corrects", "human.kind"
    REWARD = "reward", "delayed rewards of a model", "reward.name"
    RELABELLED = "relabelled", "a reward that changes as it is learned", "such a reward.name"
    COLLECTORS = "collectors", "collectors", "--collectors"
    LEARNER_PROCESS = "process", "a learner in its own process", "learner_process: on"
    RECORDING = "recording", "recorded training episodes", "record_episodes"
    INITIAL_RUN = "initial", "an initial run", "initial.run"
    DEMONSTRATIONS = "data", "recorded episodes", "demonstrations"
    ONLINE_PHASE = "online", "an online phase after recorded data", "online.steps"
    SHARED = "address", "one environment at an address", "an environment at an address"
    OBJECTIVE = "objective", "an objective beside the sum of rewards", "an objective among environment.wrappers"
    IMAGINED = "imagined", "imagined episodes", "counterfactual of the wrapper reward_machine"
    CURRICULUM = "curriculum", "a curriculum of tasks", "curriculum.sampler"
    ENVIRONMENTS = "many", "many environments in one process", "environments"
    CONTINUOUS = "continuous", "continuous actions", "continuous actions"
    DISCRETE = "discrete", "discrete actions", "discrete actions"
    PICTURES = "pictures", "pictures alone", "an environment without vectors"

    def __str__(self) -> str:
        return self.value[0]

    @property
    def noun(self) -> str:
        """Description in one sentence."""
        return self.value[1]

    @property
    def setting(self) -> str:
        """Setting that requests it."""
        return self.value[2]


@dataclass(frozen=True)
class Loop:
    """A kind of training loop."""

    name: str
    supports: frozenset[Feature] = frozenset()
    """Features of a recipe that it can train with."""
    requires: frozenset[Feature] = frozenset()
    """Features without which it is not used."""
    resume: Literal["exact", "exact*", "warm"] = "exact"
    """Kind of resume from a checkpoint in a deterministic environment.

    "exact*" is exact where environments can be saved, and without a curriculum; else warm. In many environments, those that
    are simulated one by one are saved by their seeds and actions, and rewards of a model make it warm.
    """
    is_learners: bool = False
    """True if the learner's settings bring it (robo_rl.protocols.learners.SelfTrainedConfig)."""


_F = Feature
_ACTING = frozenset({_F.OBJECTIVE, _F.PERSON, _F.REWARD, _F.RELABELLED, _F.RECORDING, _F.INITIAL_RUN, _F.DEMONSTRATIONS})
_ROLLED = frozenset({_F.COLLECTORS, _F.OBJECTIVE})
_WITH_STEPS = frozenset({_F.OBJECTIVE, _F.PERSON, _F.REWARD, _F.SHARED, _F.IMAGINED})
_AFTER_DATA = frozenset({_F.ONLINE_PHASE, _F.DEMONSTRATIONS})

ONLINE = Loop("steps", _ACTING | {_F.SHARED, _F.IMAGINED, _F.CURRICULUM})
"""One environment step, some updates (robo_rl.training.off_policy.OnlineTraining)."""
ONLINE_IN_MANY = Loop(
    "steps of many",
    frozenset(
        {
            _F.ENVIRONMENTS,
            _F.OBJECTIVE,
            _F.PERSON,
            _F.REWARD,
            _F.INITIAL_RUN,
            _F.DEMONSTRATIONS,
            _F.CURRICULUM,
        }
    ),
    frozenset({_F.ENVIRONMENTS}),
    resume="exact*",
)
"""A step in each of many environments of one process, some updates (robo_rl.training.vector_steps)."""
ACTOR_LEARNER = Loop("two processes", _ACTING | {_F.SHARED, _F.LEARNER_PROCESS}, frozenset({_F.LEARNER_PROCESS}), resume="warm")
"""Acting and learning in two processes (robo_rl.training.actor_learner)."""
COLLECTED_STEPS = Loop(
    "collected steps", frozenset({_F.COLLECTORS, _F.DEMONSTRATIONS, _F.OBJECTIVE}), frozenset({_F.COLLECTORS}), resume="warm"
)
"""Steps of several processes that act on their own (robo_rl.collectors.asynchronous)."""
ROLLOUTS = Loop("rollouts", frozenset({_F.OBJECTIVE, _F.REWARD, _F.SHARED, _F.CURRICULUM}), resume="exact*", is_learners=True)
"""Rollouts of several environments (robo_rl.training.on_policy)."""
COLLECTED_ROLLOUTS = Loop("collected rollouts", _ROLLED, frozenset({_F.COLLECTORS}), resume="exact*", is_learners=True)
"""Rollouts of several processes (robo_rl.collectors.synchronous)."""
OFFLINE = Loop("data", frozenset({_F.DEMONSTRATIONS, _F.SHARED}), frozenset({_F.DEMONSTRATIONS}))
"""Recorded episodes alone (robo_rl.training.off_policy.OfflineTraining)."""
OFFLINE_THEN_ONLINE = Loop("data, then steps", _AFTER_DATA | _WITH_STEPS, _AFTER_DATA)
"""Recorded episodes, then the environment (robo_rl.training.offline_to_online)."""
OFFLINE_THEN_CORRECTED = Loop("data, then corrections", OFFLINE_THEN_ONLINE.supports, _AFTER_DATA | {_F.PERSON})
"""The same for a learner that learns online from a person's corrections alone."""
OWN = Loop("own", frozenset({_F.OBJECTIVE, _F.REWARD, _F.DEMONSTRATIONS, _F.SHARED}), resume="warm", is_learners=True)
"""The learner's own loop (robo_rl.protocols.learners.SelfTrainedConfig)."""
EPISODES = Loop("own episodes", OWN.supports | {_F.CURRICULUM}, resume="warm", is_learners=True)
"""The same for learners from whole episodes (robo_policies.learners.episodic)."""

STEPS = (ONLINE, ONLINE_IN_MANY, ACTOR_LEARNER, COLLECTED_STEPS)
"""Loops of a learner that learns from a replay memory, step by step."""
DATA = (OFFLINE, OFFLINE_THEN_ONLINE)
"""Loops of a learner that learns from recorded episodes."""

ANY_SPACE = frozenset({Feature.CONTINUOUS, Feature.DISCRETE, Feature.PICTURES})
CONTINUOUS_ONLY = frozenset({Feature.CONTINUOUS})


@dataclass(frozen=True)
class Needs:
    """Requirements of a learner: loops that can train it, and the environment."""

    loops: tuple[Loop, ...]
    """Loops that can train it, the usual one first."""
    spaces: frozenset[Feature] = CONTINUOUS_ONLY
    """CONTINUOUS and DISCRETE actions that it can choose; PICTURES if it can learn from nothing else."""
    excludes: Mapping[Feature, str] = field(default_factory=dict)
    """Feature that its loops support and its settings rule out -> remedy."""

    @property
    def trains_itself(self) -> bool:
        """True if its settings bring the loops that train it."""
        return all(loop.is_learners for loop in self.loops)
