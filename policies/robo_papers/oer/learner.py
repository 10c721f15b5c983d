"""OER: continual offline reinforcement learning, one recorded task after the other.

Gai, Wang and He 2023, "OER: Offline Experience Replay for Continual Offline Reinforcement Learning", arXiv:2305.13804. Of each
task that is over a few steps are kept: by default the most different, in the paper those that its policy would take (MBES,
`selection: model`). Two policies:
pi learns the present task n from all of its steps, mu imitates pi and the memories B_j of the tasks before (dual cloning):

    L(mu) = E over D_n |mu(s) - pi(s)|^2 + (1 / n) sum_j E over B_j |mu(s) - a|^2

so that cloning never touches the critics. pi learns by TD3+BC, afresh for each task; mu acts.

Baselines are settings: `dual: false` clones the memories with pi itself (experience replay), `selection` chooses otherwise,
`capacity: 0` forgets, and `ewc` holds pi's parameters to those after the tasks before (Kirkpatrick et al. 2017,
arXiv:1612.00796). Differs from the paper, of which no code was found: pi starts afresh, and nothing says which task it is but
the observation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_papers.oer.selection import Recorded, Rule, select
from robo_policies.learners.bc import BC, BCConfig
from robo_policies.learners.own_loop import OwnLoop
from robo_policies.learners.td3 import TD3, Regulariser
from robo_policies.learners.td3_bc import Cloning, TD3BCSettings
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.components import Policy, Training, TrainingObserver
from robo_rl.protocols.contract import CONTINUOUS_ONLY, OWN, Feature, Needs
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.stopwatch import Stopwatch
from robo_rl.types import Array, Batch, Episode, Metrics, StateDict

FISHER_STATES = 500
"""Recorded states from which the importance of parameters is estimated."""


@dataclass(frozen=True)
class OERConfig(TD3BCSettings, OwnLoop):
    """Settings of OER (Gai et al. 2023, arXiv:2305.13804): TD3+BC on one recorded task after the other, with memories.

    The fields of TD3+BC steer the policy pi that learns a task. OER's own set the tasks, the size and choice of the memories,
    and whether a second policy clones them.
    """

    needs = Needs((OWN,), CONTINUOUS_ONLY, {Feature.REWARD: "leave reward out"})
    takes_demonstrations = True

    tasks: tuple[int, ...] = ()
    """Number of episodes of each task, in the order of the dataset (`robo-rl data merge` keeps that of its arguments). Empty: a
    task for each instruction, in the order in which they first appear."""
    capacity: int = 500
    """Number of steps that are kept of each task; 0 forgets."""
    selection: Rule = "coverage"
    """Rule that chooses the steps that are kept; "model" (MBES) is the paper's."""
    dual: bool = True
    """True for two policies; False clones the memories with the policy that learns."""
    ewc: float = 0.0
    """Weight of elastic weight consolidation, for `dual: false`."""
    model_updates: int = 2000
    """Updates of the dynamics model, for the selection "model"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {"capacity": 0, "ewc": 0, "model_updates": 1}
        allowed = {name: (getattr(self, name) >= low, f"{low} or more") for name, low in least.items()}
        allowed["tasks"] = (all(count >= 1 for count in self.tasks), "1 or more episodes of each")
        allowed["ewc"] = (self.ewc == 0 or (self.ewc > 0 and not self.dual), "0 or more, and above 0 with dual: false alone")
        require_allowed(self, allowed)

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> TD3:
        return TD3(spec, self, seed, self.rehearsal())

    def rehearsal(self) -> Rehearsal:
        """Make the regulariser of pi, which has no memories yet."""
        return Rehearsal(Cloning(self.alpha), self.ewc)

    def imitator(self, spec: EnvironmentSpec, seed: int) -> BC:
        """Build the untrained imitator mu, which clones pi and the memories."""
        shared = {name: getattr(self, name) for name in ("lr", "batch_size", "device")}
        return BCConfig(**shared, network=self.network).build(spec, seed)

    @override
    def loop(self) -> Callable[..., Training]:
        return ContinualTraining

    @override
    def policy_of(self, spec: EnvironmentSpec, seed: int, state: StateDict) -> Policy:
        learner: Any = self.imitator(spec, seed) if self.dual else self.build(spec, seed)
        learner.load_state_dict(state["imitator" if self.dual else "learner"])
        policy: Policy = learner.policy
        return policy


@dataclass(frozen=True)
class Memory:
    """M steps of an earlier task that are kept for rehearsal."""

    observations: dict[str, Array]
    """Name of an entry -> its observations (M, ...)"""
    actions: Array
    """(M, A) recorded actions"""

    def drawn(self, count: int, random: np.random.Generator) -> Memory:
        """Draw `count` steps at random, with replacement."""
        rows = random.integers(len(self.actions), size=count)
        return Memory({name: values[rows] for name, values in self.observations.items()}, self.actions[rows])


def tasks_of(episodes: Sequence[Episode], counts: Sequence[int]) -> list[list[Episode]]:
    """Divide episodes into tasks: by the given numbers of episodes, or else by instruction. Raises InvalidSetting."""
    if counts:
        if sum(counts) != len(episodes):
            raise InvalidSetting(
                "The tasks have another number of episodes than the dataset.",
                got=f"learner.tasks {list(counts)}, {sum(counts)} in all",
                allowed=f"{len(episodes)} in all",
            )
        ends = np.cumsum(counts).tolist()
        return [[*episodes[end - count : end]] for count, end in zip(counts, ends, strict=True)]
    found: dict[str | None, list[Episode]] = {}
    for each in episodes:
        found.setdefault(each.instruction, []).append(each)
    if len(found) < 2:
        raise InvalidSetting(
            "Continual learning needs two tasks or more.",
            got=f"{len(episodes)} episodes with the instruction {next(iter(found), None)!r}",
            fix="learner.tasks says how many episodes each task has, in their order",
        )
    return [*found.values()]


class Rehearsal(Regulariser):
    """Regulariser of OER: adds the cloning of memories, and may hold the actor to earlier parameters (EWC)."""

    def __init__(self, cloning: Regulariser, strength: float) -> None:
        """cloning: of the present task; strength: of elastic weight consolidation."""
        self._cloning, self._strength = cloning, strength
        self.rehearsed: Callable[[], Sequence[Memory]] = tuple
        """Returns a minibatch of each memory."""
        self.anchors: list[tuple[list[Tensor], list[Tensor]]] = []
        """Parameters of the actor after each earlier task, and their importance."""

    @override
    def actor_loss(self, learner: TD3, observations: Tensor, data: TensorBatch) -> Tensor:
        loss = self._cloning.actor_loss(learner, observations, data)
        memories = self.rehearsed()
        for memory in memories:
            seen = features(learner, memory.observations)
            actions = torch.from_numpy(memory.actions).to(learner.parts.device)
            loss = loss + (learner.actor(seen) - actions).square().mean() / (len(memories) + 1)
        for parameters, importance in self.anchors:
            parts = zip(learner.actor.parameters(), parameters, importance, strict=True)
            loss = loss + 0.5 * self._strength * sum((weight * (now - then).square()).sum() for now, then, weight in parts)
        return loss

    def hold(self, learner: TD3, observations: dict[str, Array]) -> None:
        """Hold the actor to its present parameters from now on (elastic weight consolidation).

        Each counts by the diagonal Fisher information of a Gaussian around the actor's action, on these observations.
        """
        actor = learner.actor
        importance = [torch.zeros_like(each) for each in actor.parameters()]
        rows = features(learner, observations)
        for row in rows:
            actions = actor(row[None])[0]
            drawn = torch.randn(len(actions), generator=learner.parts.generator).to(actions.device)
            for total, slope in zip(importance, torch.autograd.grad(actions @ drawn, [*actor.parameters()]), strict=True):
                total.add_(slope.square() / len(rows))
        self.anchors.append(([each.detach().clone() for each in actor.parameters()], importance))


def features(learner: TD3, observations: dict[str, Array]) -> Tensor:
    """Encode named observations into the inputs of the actor (B, F)."""
    encoder = learner.parts.encoder
    return encoder(encoder.tensors(encoder.stack(observations), observations, learner.parts.device))


@torch.no_grad()
def chosen(learner: TD3, observations: dict[str, Array]) -> Array:
    """Return the actions (B, A) that the learner's actor takes for named observations."""
    actions: Array = learner.actor(features(learner, observations)).cpu().numpy()
    return actions


class ContinualTraining:
    """Training loop of OER: learns one task after the other, in equal shares of the steps.

    A resume draws other minibatches.
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        config: OERConfig,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode],
    ) -> None:
        self._spec = specification(environment)
        environment.close()  # nothing is played
        if not demonstrations:
            raise InvalidSetting("OER learns from recorded episodes alone.", got="none", fix="--dataset DATASET")
        self.tasks = tasks_of(demonstrations, config.tasks)
        self.config, self.steps, self.seed = config, steps, seed
        self.rehearsal = config.rehearsal()
        self.learner = TD3(self._spec, config, seed, self.rehearsal)
        """pi"""
        self.imitator = config.imitator(self._spec, seed)
        """mu"""
        self.memories: list[Memory] = []
        self.step = self.task = 0
        self.resumed: str | None = None
        self.stopwatch = Stopwatch()
        self._begin()

    @property
    def policy(self) -> Any:
        """The policy that acts: the cloned policy mu, or pi if there is no dual cloning."""
        return self.imitator.policy if self.config.dual else self.learner.policy

    def _begin(self) -> None:
        """Make ready for the present task."""
        self._random = np.random.default_rng([self.seed, self.task])
        self._replay = RecordedReplay.of(self._spec, self.tasks[self.task], self.seed + self.task)
        if not self.config.dual:
            self.rehearsal.rehearsed = self._rehearsed
        elif self.task:
            self.learner = TD3(self._spec, self.config, self.seed + self.task, self.rehearsal)

    def _rehearsed(self) -> list[Memory]:
        return [memory.drawn(self.config.batch_size, self._random) for memory in self.memories]

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last."""
        self.stopwatch.start()
        while self.step < self.steps:
            if self.step >= self._end(self.task):
                self.stopwatch.time("update", self._finish_task)
                self.task += 1
                self._begin()
            observer.on_metrics(self.step, self.stopwatch.time("update", self._update))
            self.step += 1
            observer.on_step(self.step, self)

    def _end(self, task: int) -> int:
        return self.steps * (task + 1) // len(self.tasks)

    def _update(self) -> Metrics:
        batch = self._replay.sample(self.config.batch_size, 1, self.config.discount)
        metrics = {**self.learner.update(batch)}
        if self.config.dual:
            metrics |= self.imitator.update(self._imitated(batch))
        return metrics

    def _imitated(self, batch: Batch) -> Batch:
        """Return steps of this task with the actions of pi, and steps of the memories with their own."""
        memories = self._rehearsed()
        share = [1.0, *[1.0 / (len(memories) + 1)] * len(memories)]
        taught = [Memory({**batch.observations}, chosen(self.learner, {**batch.observations})), *memories]
        names, count = batch.observations, len(batch)
        joined = {name: np.concatenate([each.observations[name] for each in taught]) for name in names}
        # the mean over rows, times their number, is the sum of means
        weights = np.repeat(np.float32(len(taught)) * np.array(share, np.float32), count)
        zeros = np.zeros(len(weights), np.float32)
        return replace(
            batch,
            observations=joined,
            next_observations=joined,
            actions=np.concatenate([each.actions for each in taught]),
            weights=weights,
            rewards=zeros,
            masks=zeros,
            discounts=zeros,
            sources=zeros.astype(np.int8),
        )

    def _finish_task(self) -> None:
        """Keep steps of the task that is over."""
        episodes = [each for each in self.tasks[self.task] if len(each)]
        observations = {
            name: np.concatenate([each.observations[name][:-1] for each in episodes])
            for name in self.learner.parts.encoder.reads
        }
        actions = np.concatenate([each.actions for each in episodes])
        if self.config.capacity:
            recorded = self._recorded(episodes, observations, actions)
            kept = select(
                self.config.selection, recorded, self.config.capacity, self._random, updates=self.config.model_updates
            )
            self.memories.append(Memory({name: values[kept] for name, values in observations.items()}, actions[kept]))
        if self.config.ewc:
            rows = self._random.permutation(len(actions))[:FISHER_STATES]
            self.rehearsal.hold(self.learner, {name: values[rows] for name, values in observations.items()})

    def _recorded(self, episodes: Sequence[Episode], observations: dict[str, Array], actions: Array) -> Recorded:
        learner, encoder = self.learner, self.learner.parts.encoder
        after = {name: np.concatenate([each.observations[name][1:] for each in episodes]) for name in observations}
        states = encoder.stack(observations).astype(np.float64)
        mean, deviation = states.mean(0), np.maximum(states.std(0), 1e-6)
        rewards = np.concatenate([each.rewards for each in episodes]).astype(np.float64)
        lengths = [len(each) for each in episodes]
        goes_on = np.ones(len(rewards))
        goes_on[np.cumsum(lengths) - 1] = [not each.terminated for each in episodes]
        with torch.no_grad():
            value, following = (
                learner.critic(features(learner, seen), torch.from_numpy(taken).to(learner.parts.device))[0].cpu().numpy()
                for seen, taken in ((observations, actions), (after, chosen(learner, after)))
            )
        policy = chosen(learner, observations)
        return Recorded(
            states=(states - mean) / deviation,
            actions=actions.astype(np.float64),
            following=(encoder.stack(after) - mean) / deviation,
            rewards=rewards,
            firsts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp),
            surprise=np.abs(rewards + self.config.discount * goes_on * following - value),
            act=lambda places: policy[places].astype(np.float64),
        )

    def state_dict(self) -> StateDict:
        """Return the states of both policies, the memories and the counters."""
        memories = {str(number): {"actions": each.actions, **each.observations} for number, each in enumerate(self.memories)}
        anchors = {
            str(number): {"parameters": dict(enumerate(parameters)), "importance": dict(enumerate(importance))}
            for number, (parameters, importance) in enumerate(self.rehearsal.anchors)
        }
        counters = {"step": self.step, "task": self.task, "seconds": self.stopwatch.state_dict()}
        learners = {"learner": self.learner.state_dict(), "imitator": self.imitator.state_dict()}
        return {**learners, "memories": memories, "anchors": anchors, "training": counters}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the training continues with other minibatches."""
        training: Any = state["training"]
        self.step, self.task = int(training["step"]), int(training["task"])
        self._begin()
        self.learner.load_state_dict(state["learner"])
        self.imitator.load_state_dict(state["imitator"])
        self.memories = []
        for number in range(len(state["memories"])):
            kept = {name: np.array(values) for name, values in state["memories"][str(number)].items()}
            self.memories.append(Memory(kept, kept.pop("actions")))
        self.rehearsal.anchors = []
        for number in range(len(state["anchors"])):
            both = state["anchors"][str(number)]
            self.rehearsal.anchors.append((_tensors(both["parameters"]), _tensors(both["importance"])))
        self.stopwatch.load_state_dict(training["seconds"])
        self.resumed = "warm"


def _tensors(values: Any) -> list[Tensor]:
    return [torch.as_tensor(values[key]) for key in sorted(values, key=int)]
