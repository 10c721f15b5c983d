"""Base of learners from whole episodes of their own: play some, learn from all of them, forget them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.own_loop import OwnLoop
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.encoders import Observations
from robo_policies.networks.regression_actors import CategoricalActor, GaussianActor
from robo_policies.networks.settings import NetworkSettings
from robo_rl.environments.curriculum import curriculum_state, load_curriculum_state
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.components import TrainingObserver
from robo_rl.protocols.contract import EPISODES, Feature, Needs
from robo_rl.requirements import require_finite_data
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.episode_reports import report_episode
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import DIVERGED, Episode, Metrics, StateDict


@dataclass(frozen=True)
class EpisodicConfig(NetworkSettings, OwnLoop):
    """Settings of a learner from whole episodes."""

    needs = Needs(
        (EPISODES,),
        frozenset({Feature.CONTINUOUS, Feature.DISCRETE}),
        {Feature.REWARD: "leave reward out", Feature.DEMONSTRATIONS: "none"},
    )

    lr: float = 3e-4
    """Learning rate of Adam."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of the policy."""
    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    episodes: int = 16
    """Episodes between two updates."""
    group: int = 1
    """Of these, episodes that begin in the same state, by the same seed; divides `episodes`."""

    def __post_init__(self) -> None:
        require_allowed(
            self,
            {
                "lr": (self.lr > 0, "above 0"),
                "hidden": (all(units >= 1 for units in self.hidden), "1 or more units in each layer"),
                "discount": (0 <= self.discount <= 1, "0 to 1"),
                "episodes": (self.episodes >= 1, "1 or more"),
                "group": (self.group >= 1 and self.episodes % self.group == 0, "1 or more, a divisor of episodes"),
            },
        )

    @override
    def loop(self) -> type[EpisodicTraining]:
        return EpisodicTraining


class EpisodicLearner(Learned, ABC):
    """A policy that learns from episodes: Gaussian for continuous actions, categorical for discrete ones."""

    def __init__(self, spec: EnvironmentSpec, config: EpisodicConfig, seed: int) -> None:
        self.parts = parts = LearnerParts(spec, config, seed)
        kind = CategoricalActor if spec.action.is_discrete else GaussianActor
        self.actor = parts.add("actor", kind(parts.networks, parts.encoder.size, spec.action.size), config.lr)
        parts.act_with(self.actor)

    @abstractmethod
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        """Learn from the newest episodes, those of a group side by side; returns metrics under train/."""

    def prepare(self, demonstrations: Sequence[Episode]) -> Metrics:
        """Learn from recorded episodes before the first of its own."""
        return {}

    def standardise(self, episodes: Sequence[Episode]) -> None:
        """Take the observations of new episodes into the mean and deviation of the input; those that are not finite not."""
        encoder = self.parts.encoder
        for each in episodes:
            stacked = encoder.stack({name: each.observations[name][:-1] for name in encoder.reads})
            if len(stacked) and np.isfinite(stacked).all():
                encoder.fit(torch.from_numpy(stacked))

    def inputs(self, episodes: Sequence[Episode]) -> tuple[Tensor, Tensor]:
        """Return features (B, F) and actions (B, ...) of all steps; raises NonFiniteUpdate."""
        encoder, parts = self.parts.encoder, self.parts
        seen = {name: np.concatenate([each.observations[name][:-1] for each in episodes]) for name in encoder.reads}
        stacked = encoder.stack(seen)
        require_finite_data({"observations": stacked}, parts.updates, "episodes")
        found: Observations = encoder.tensors(stacked, seen, parts.device)
        actions = torch.from_numpy(np.concatenate([each.actions for each in episodes])).to(parts.device)
        return encoder(found), actions

    def log_densities(self, features: Tensor, actions: Tensor, actor: nn.Module | None = None) -> Tensor:
        """Return log pi(a|s), (B,), of the policy or of another actor of its kind."""
        actor = self.actor if actor is None else actor
        if isinstance(actor, CategoricalActor):
            return -actor.loss(features, actions)
        assert isinstance(actor, GaussianActor)
        return actor.log_density(features, actions, self.parts.generator)


@dataclass(frozen=True)
class ClippedConfig(EpisodicConfig):
    """Settings of learners that take several clipped steps over their episodes."""

    clip_low: float = 0.2
    """Fall of the probability ratio beyond which nothing is gained."""
    clip_high: float = 0.28
    """Rise of it."""
    epochs: int = 4
    """Passes over a batch of episodes."""
    batch_size: int = 512
    """Steps of one gradient step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = {name: (getattr(self, name) > 0, "above 0") for name in ("clip_low", "clip_high")}
        counts = {name: (getattr(self, name) >= 1, "1 or more") for name in ("epochs", "batch_size")}
        require_allowed(self, positive | counts)


class ClippedLearner(EpisodicLearner):
    """Climbs the clipped surrogate of PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7) over whole episodes."""

    def __init__(self, spec: EnvironmentSpec, config: ClippedConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self._clipped = config
        self.random = np.random.default_rng(seed)
        """Of minibatches, and of all that a learner draws."""

    def clone(self, demonstrations: Sequence[Episode], updates: int, initial_std: float) -> Metrics:
        """Clone recorded episodes by that many updates; continuous actions explore with `initial_std` then."""
        if not updates:
            return {}
        features, actions = self.inputs([each for each in demonstrations if len(each)])
        loss = torch.zeros(())
        for _ in range(updates):
            rows = torch.from_numpy(self.random.integers(len(actions), size=256))
            loss = -self.log_densities(features[rows], actions[rows]).mean()
            self.parts.descend("actor", loss)
        if isinstance(self.actor, GaussianActor):
            with torch.no_grad():
                self.actor.log_std.fill_(float(np.log(initial_std)))
        return self.parts.finish_update({"clone_loss": loss})

    def climb(self, episodes: Sequence[Episode], advantages: npt.NDArray[np.floating]) -> Tensor:
        """Take some passes over the steps of episodes, given advantages (B,) of these; return the last mean ratio."""
        features, actions = self.inputs(episodes)
        each_step = torch.from_numpy(np.asarray(advantages, np.float32))
        with torch.no_grad():
            old = self.log_densities(features, actions)
        rows, ratio = np.arange(len(actions)), torch.ones(1)
        for _ in range(self._clipped.epochs):
            self.random.shuffle(rows)
            for part in np.array_split(rows, max(1, len(rows) // self._clipped.batch_size)):
                chosen = torch.from_numpy(part)
                densities = self.log_densities(features[chosen], actions[chosen])
                ratio = torch.exp((densities - old[chosen]).clamp(max=20.0))
                loss = self.loss(ratio, each_step[chosen].to(ratio.device))
                self.parts.descend("actor", loss + self.other_loss(features[chosen], actions[chosen], densities))
        return ratio.mean()

    def loss(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        """Return -min(r A, clip(r, 1 - low, 1 + high) A), the mean over steps."""
        clipped = ratio.clamp(1.0 - self._clipped.clip_low, 1.0 + self._clipped.clip_high)
        return -torch.minimum(ratio * advantages, clipped * advantages).mean()

    @override
    def state_dict(self) -> StateDict:
        return super().state_dict() | {"random": self.random.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        generator: Any = state["random"]
        self.random.bit_generator.state = generator

    def other_loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        """Return a term of the loss of each step, given its rows (B, ...) and log pi(a|s) (B,): by default 0."""
        return torch.zeros((), device=self.parts.device)


class EpisodicTraining:
    """Plays `episodes` episodes, learns from them, as long as as many fit into the steps. A resume begins with new ones."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        config: Any,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
    ) -> None:
        """config: EpisodicConfig that builds an EpisodicLearner."""
        self.environment, self.config, self.steps, self.seed = environment, config, steps, seed
        self._spec = specification(environment)
        if self._spec.max_steps is None:
            raise InvalidSetting(
                f"Episodes of {self._spec.name} may never end, and are learned from as a whole.",
                got="no time limit",
                fix="set environment.arguments.max_steps",
            )
        self.learner: EpisodicLearner = config.build(self._spec, seed)
        self.policy = self.learner.policy
        self._demonstrations = demonstrations
        self.step = self.episodes = 0
        self.resumed: str | None = None
        self.stopwatch = Stopwatch()

    def run(self, observer: TrainingObserver) -> None:
        """Trains from the present step on."""
        time = self.stopwatch.time
        self.stopwatch.start()
        if not self.episodes and self._demonstrations:
            self.learner.standardise(self._demonstrations)
            observer.on_metrics(self.step, time("update", partial(self.learner.prepare, self._demonstrations)))
        longest = self.config.episodes * (self._spec.max_steps or 1)
        while self.step + longest <= self.steps:
            numbers = range(self.episodes, self.episodes + self.config.episodes)
            played = [time("simulate", partial(self._play, number)) for number in numbers]
            for each in played:
                self.step += len(each)
                self.episodes += 1
                report_episode(observer, self.step, each)
            sound = [each for each in played if each.stop_reason != DIVERGED]
            if len(sound) == len(played):  # a group is learned from as a whole
                self.learner.standardise(sound)
                observer.on_metrics(self.step, time("update", partial(self.learner.learn, sound)))
            observer.on_step(self.step, self)

    def _play(self, number: int) -> Episode:
        return rollout(self.environment, self.policy, seed=self._seed(number))

    def _seed(self, number: int) -> int:
        return episode_seed(self.seed, number // self.config.group)

    def state_dict(self) -> StateDict:
        """Return the learner and the counters."""
        counters = {"step": self.step, "episodes": self.episodes, "seconds": self.stopwatch.state_dict()}
        counters |= {"curriculum": curriculum_state(self.environment)}
        return {"learner": self.learner.state_dict(), "training": counters}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        self.learner.load_state_dict(state["learner"])
        self.step, self.episodes = int(state["training"]["step"]), int(state["training"]["episodes"])
        self.stopwatch.load_state_dict(state["training"]["seconds"])
        load_curriculum_state(self.environment, state["training"].get("curriculum", {}))
        self.resumed = "warm"
