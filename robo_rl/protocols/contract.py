"""What a recipe asks for (`Feature`), the training loops that support it (`Loop`), and what a learner needs (`Needs`).

`robo_rl.training.compatibility` compares a recipe with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class Feature(Enum):
    """Feature that a recipe can request from a training loop, such as several environments or a reward model.

    Each value is (column of the table, its meaning, the setting that requests it).
    """

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
        """Description of the feature in words, for messages."""
        return self.value[1]

    @property
    def setting(self) -> str:
        """Name of the recipe's setting that requests the feature."""
        return self.value[2]


@dataclass(frozen=True)
class Loop:
    """A kind of training loop, described by the features of a recipe with which it can train."""

    name: str
    """Name of the loop in lists and tables."""
    supports: frozenset[Feature] = frozenset()
    """Features of a recipe that the loop can train with."""
    requires: frozenset[Feature] = frozenset()
    """Features without which the loop is not used."""
    resume: Literal["exact", "exact*", "warm"] = "exact"
    """Kind of resume from a checkpoint in a deterministic environment. "exact": later steps are as without interruption;
    "warm": they may differ. "exact*": exact if the environments can be saved and there is no curriculum, otherwise warm.
    Several environments that are simulated one by one are saved by their seeds and actions; rewards of a model then make the
    resume warm."""
    is_learners: bool = False
    """True if the settings of the learner bring the loop (robo_rl.protocols.learners.SelfTrainedConfig)."""


_F = Feature
_ACTING = frozenset({_F.OBJECTIVE, _F.PERSON, _F.REWARD, _F.RELABELLED, _F.RECORDING, _F.INITIAL_RUN, _F.DEMONSTRATIONS})
_ROLLED = frozenset({_F.COLLECTORS, _F.OBJECTIVE})
_WITH_STEPS = frozenset({_F.OBJECTIVE, _F.PERSON, _F.REWARD, _F.SHARED, _F.IMAGINED})
_AFTER_DATA = frozenset({_F.ONLINE_PHASE, _F.DEMONSTRATIONS})

ONLINE = Loop("steps", _ACTING | {_F.SHARED, _F.IMAGINED, _F.CURRICULUM})
"""Training loop with one environment: one step, then updates (robo_rl.training.off_policy.OnlineTraining)."""
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
"""Training loop with several environments in one process: one step of each, then updates (robo_rl.training.vector_steps)."""
ACTOR_LEARNER = Loop("two processes", _ACTING | {_F.SHARED, _F.LEARNER_PROCESS}, frozenset({_F.LEARNER_PROCESS}), resume="warm")
"""Training loop in two processes, one that acts and one that learns (robo_rl.training.actor_learner)."""
COLLECTED_STEPS = Loop(
    "collected steps", frozenset({_F.COLLECTORS, _F.DEMONSTRATIONS, _F.OBJECTIVE}), frozenset({_F.COLLECTORS}), resume="warm"
)
"""Training loop whose steps come from several acting processes, which do not wait for the learner
(robo_rl.collectors.asynchronous)."""
ROLLOUTS = Loop("rollouts", frozenset({_F.OBJECTIVE, _F.REWARD, _F.SHARED, _F.CURRICULUM}), resume="exact*", is_learners=True)
"""Training loop of on-policy learners: rollouts of several environments in one process (robo_rl.training.on_policy)."""
COLLECTED_ROLLOUTS = Loop("collected rollouts", _ROLLED, frozenset({_F.COLLECTORS}), resume="exact*", is_learners=True)
"""Training loop of on-policy learners: rollouts from several acting processes (robo_rl.collectors.synchronous)."""
OFFLINE = Loop("data", frozenset({_F.DEMONSTRATIONS, _F.SHARED}), frozenset({_F.DEMONSTRATIONS}))
"""Training loop without an environment: recorded episodes only (robo_rl.training.off_policy.OfflineTraining)."""
OFFLINE_THEN_ONLINE = Loop("data, then steps", _AFTER_DATA | _WITH_STEPS, _AFTER_DATA)
"""Training loop that learns from recorded episodes first, then from steps in the environment
(robo_rl.training.offline_to_online)."""
OFFLINE_THEN_CORRECTED = Loop("data, then corrections", OFFLINE_THEN_ONLINE.supports, _AFTER_DATA | {_F.PERSON})
"""Training loop as OFFLINE_THEN_ONLINE, for a learner that in its second part learns only from a person's corrections."""
OWN = Loop("own", frozenset({_F.OBJECTIVE, _F.REWARD, _F.DEMONSTRATIONS, _F.SHARED}), resume="warm", is_learners=True)
"""Training loop that a learner brings itself (robo_rl.protocols.learners.SelfTrainedConfig)."""
EPISODES = Loop("own episodes", OWN.supports | {_F.CURRICULUM}, resume="warm", is_learners=True)
"""Training loop of learners that learn from whole episodes (robo_policies.learners.episodic)."""

STEPS = (ONLINE, ONLINE_IN_MANY, ACTOR_LEARNER, COLLECTED_STEPS)
"""Training loops for learners that sample from a replay memory while an environment is stepped."""
DATA = (OFFLINE, OFFLINE_THEN_ONLINE)
"""Training loops for learners that begin with recorded episodes."""

ANY_SPACE = frozenset({Feature.CONTINUOUS, Feature.DISCRETE, Feature.PICTURES})
CONTINUOUS_ONLY = frozenset({Feature.CONTINUOUS})


@dataclass(frozen=True)
class Needs:
    """What a learner with its settings needs: training loops that can train it, and actions that it supports."""

    loops: tuple[Loop, ...]
    """Training loops that can train the learner, the usual one first."""
    spaces: frozenset[Feature] = CONTINUOUS_ONLY
    """CONTINUOUS and DISCRETE for the actions that the learner supports; PICTURES if it can learn from pictures alone."""
    excludes: Mapping[Feature, str] = field(default_factory=dict)
    """Feature that the loops support but the settings of the learner rule out -> remedy in words."""

    @property
    def trains_itself(self) -> bool:
        """True if the settings of the learner bring all of its training loops."""
        return all(loop.is_learners for loop in self.loops)
