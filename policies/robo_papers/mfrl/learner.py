"""Multi-fidelity reinforcement learning of plans: Ryou, Wang and Karaman 2024, arXiv:2403.08152.

"Multi-Fidelity Reinforcement Learning for Time-Optimal Quadrotor Re-planning". A policy allots times and smoothness to the
segments of a plan. Its reward is estimated: the share of time that a plan saves, weighed by the probability that it can be
flown, which labels of a cheap check and few real flights teach. The environment plays one flight per episode and has
`propose(observation, action)`, which plans without flying. B plans, S segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from typing_extensions import override

from robo_papers.mfrl.feasibility import Feasibility
from robo_policies.learners.clipped_step import clipped_surrogate, probability_ratio
from robo_policies.learners.own_loop import OwnLoop
from robo_policies.learners.parts import ActorPolicy, Learned, LearnerParts
from robo_policies.networks.actor_critic import Trainable
from robo_policies.networks.settings import LearnerSettings, Network
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.components import TrainingObserver
from robo_rl.protocols.contract import OWN, Feature, Needs
from robo_rl.rollout.episode import Rollout, rollout
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.episode_reports import report_episode
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import Array, Metrics, StateDict


@dataclass(frozen=True)
class MFRLNetwork(Network):
    """Settings group `network` of MFRL: units of the recurrent layers."""

    hidden: tuple[int, ...] = (64,)
    """Units of the recurrent layers, one number; the paper has 256."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require({"hidden": (len(self.hidden) == 1, "one number")})
        self.require_unused("it has a recurrent network", "actor", "critic", "layer_norm", "precision")


@dataclass(frozen=True)
class ClassifierSettings:
    """Settings group `model` of MFRL: the classifiers that tell which plans can be flown, and their fit."""

    inducing: int = 128
    """Number of inducing points of each classifier, a Gaussian process."""
    lr: float = 0.02
    """Learning rate of the classifiers' fit."""
    steps: int = 10
    """Gradient steps of the classifiers after each flight."""
    first_steps: int = 300
    """Gradient steps of the classifiers before the first update of the policy."""

    def __post_init__(self) -> None:
        require_allowed(self, {"inducing": (self.inducing >= 2, "2 or more")}, group="model")


@dataclass(frozen=True)
class MFRLConfig(LearnerSettings, OwnLoop):
    """Settings of MFRL (Ryou et al. 2024, arXiv:2403.08152), which learns quadrotor plans with few real flights.

    They set the labels of both fidelities, the batches of plans, the exploration and the bounds of the reward. Defaults are the
    paper's unless a field says otherwise.
    """

    needs = Needs((OWN,), frozenset({Feature.CONTINUOUS}), {Feature.REWARD: "leave reward out", Feature.DEMONSTRATIONS: "none"})

    fidelities: Literal["both", "low", "high"] = "both"
    """Which labels the reward is estimated from: cheap checks (low), flights (high) or both. One kind alone is for
    comparison."""
    lr: float = 3e-3
    """Learning rate of policy and value; the paper's 1e-4 is for many more updates."""
    network: MFRLNetwork = MFRLNetwork()
    """Sizes of the networks, and how they are computed."""
    batch_size: int = 200
    """Number of plans in one update."""
    plans_per_task: int = 8
    """Plans of a batch for the same task; their mean reward is the baseline of each."""
    epochs: int = 5
    """Gradient steps on each batch; the paper has 10."""
    clip: float = 0.2
    """Relative change of a plan's probability beyond which an update gains nothing (clip of PPO)."""
    largest_kl: float = 0.1
    """[nat] The gradient steps on a batch end once the policy differs by this KL divergence from the one that drew it."""
    action_std: float = 0.1
    """Standard deviation of the policy's actions at the start."""
    last_action_std: float = 0.03
    """Standard deviation at the end; it falls with every flight. In the paper it stays, and so the best mean keeps a distance
    from plans that cannot be flown."""
    tasks: int = 300
    """Size of the pool of tasks, which is drawn once; plans are made for these."""
    low_labels: int = 16
    """Plans of each update that the cheap check labels: those of which its classifier is least certain."""
    updates_per_flight: int = 4
    """Updates between two flights; a flight is an environment step. The paper has 1."""
    first_low: int = 512
    """Plans that the cheap check labels before the first update."""
    first_flights: int = 20
    """Flights before the first update, of plans of the untrained policy."""
    first_std: float = 0.4
    """Standard deviation of the actions for the plans before the first update."""
    model: ClassifierSettings = ClassifierSettings()
    """Classifiers that tell which plans can be flown."""
    failed_reward: float = -1.0
    """Reward of a plan that cannot be flown."""
    reward_low: float = -1.5
    """Lowest reward of a plan."""
    reward_high: float = 0.2
    """Highest reward of a plan."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = {
            "batch_size": 2,
            "plans_per_task": 2,
            "tasks": 1,
            "first_flights": 1,
            "first_low": 2,
            "updates_per_flight": 1,
        }
        allowed = {name: (getattr(self, name) >= count, f"{count} or more") for name, count in least.items()}
        allowed["plans_per_task"] = (self.batch_size % self.plans_per_task == 0, "a divisor of batch_size")
        allowed["first_low"] = (self.first_low >= self.model.inducing, "model.inducing or more")
        allowed["last_action_std"] = (0.0 < self.last_action_std <= self.action_std, "above 0, at most action_std")
        allowed["largest_kl"] = (self.largest_kl > 0, "above 0")
        allowed["fidelities"] = (self.fidelities in ("both", "low", "high"), "both, low or high")
        require_allowed(self, allowed)

    def build(self, spec: EnvironmentSpec, seed: int) -> MFRL:
        """Build an untrained MFRL learner for the spec of an environment; its networks are initialised from `seed`."""
        return MFRL(spec, self, seed)

    @override
    def loop(self) -> type[MFRLTraining]:
        return MFRLTraining


class SegmentActor(Trainable):
    """Actor of MFRL: recurrent encoder and decoder over the segments of a plan, with two actions for each segment.

    The actions are around 0 at the start.
    """

    def __init__(self, segments: int, units: int, deviation: float) -> None:
        super().__init__()
        self.segments, self.deviation = segments, deviation
        self.encoder = nn.GRU(4, units, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(2 * units, units, batch_first=True)
        self.start = nn.Linear(2 * units, units)
        self.mean = nn.Linear(units, 2)
        nn.init.zeros_(self.mean.weight)  # the first policy proposes the least-snap plan itself
        nn.init.zeros_(self.mean.bias)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and the mask of the actions, given features (B, 4 S).

        Returns:
            Means (B, 2 S), 0 beyond a plan's last segment; mask (B, 2 S), True for the actions of its segments.
        """
        steps, times = features[:, : 3 * self.segments], features[:, 3 * self.segments :]
        valid = times > 0.0
        inputs = torch.cat([steps.unflatten(1, (self.segments, 3)), times.unsqueeze(2)], 2)
        packed = nn.utils.rnn.pack_padded_sequence(inputs, valid.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        encoded, last = self.encoder(packed)
        seen, _ = nn.utils.rnn.pad_packed_sequence(encoded, batch_first=True, total_length=self.segments)
        task = last.transpose(0, 1).flatten(1)
        decoded, _ = self.decoder(seen, torch.tanh(self.start(task)).unsqueeze(0))
        means = self.mean(decoded).transpose(1, 2).flatten(1)
        counts = valid.repeat(1, 2)
        return means * counts, counts

    def mode(self, observations: Tensor) -> Tensor:
        """Return the means (B, 2 S), clipped to [-1, 1]."""
        means: Tensor = self(observations)[0]
        return means.clamp(-1.0, 1.0)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Draw actions (B, 2 S) with the actor's own deviation, clipped to [-1, 1]."""
        return self.sample(observations, generator, self.deviation).clamp(-1.0, 1.0)

    def sample(self, observations: Tensor, generator: torch.Generator, deviation: float) -> Tensor:
        """Draw actions around the means, without limits: they may lie beyond [-1, 1].

        Args:
            observations: (B, 4 S) features of B plans of up to S segments.
            generator: Source of the noise.
            deviation: Standard deviation of the noise.

        Returns:
            (B, 2 S): S numbers for the times of the segments, then S for their smoothness. Those beyond a plan's last segment
            have no noise.
        """
        means, counts = self(observations)
        noise = torch.randn(means.shape, generator=generator).to(means.device)
        actions: Tensor = means + deviation * noise * counts
        return actions

    def log_density(self, means: Tensor, counts: Tensor, actions: Tensor) -> Tensor:
        """Return log pi (B,) of actions (B, 2 S), summed over those that `counts` (B, 2 S) marks."""
        densities: Tensor = Normal(means, self.deviation).log_prob(actions)
        return (densities * counts).sum(1)


class MFRL(Learned):
    """Learner of MFRL: PPO's clipped objective on estimated rewards (Schulman et al. 2017, arXiv:1707.06347, eq. 7)."""

    def __init__(self, spec: EnvironmentSpec, config: MFRLConfig, seed: int) -> None:
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        segments = spec.action.size // 2
        if parts.encoder.size != 4 * segments:
            got = f"{parts.encoder.size} observed numbers, {spec.action.size} actions"
            allowed = "3 S steps and S times; S stretches and S weights, such as quadrotor/Waypoints-v0"
            raise InvalidSetting(f"{spec.name} has no segments to allot times to.", got=got, allowed=allowed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            actor = SegmentActor(segments, config.network.hidden[0], config.action_std)
        self.actor = parts.add("actor", actor, config.lr)
        parts.act_with(self.actor)

    @torch.no_grad()
    def draw(self, features: Tensor, deviation: float) -> Tensor:
        """Draw actions (B, 2 S) for plans of S segments with standard deviation `deviation`; they may lie beyond [-1, 1]."""
        return self.actor.sample(features, self.parts.generator, deviation)

    def learn(self, features: Tensor, actions: Tensor, rewards: Tensor) -> Metrics:
        """Take the gradient steps of one batch of plans.

        Args:
            features: (B, 4 S); the `plans_per_task` plans of a task follow each other.
            actions: (B, 2 S) drawn by the present policy.
            rewards: (B,) estimated rewards of the plans.
        """
        config = self.config
        with torch.no_grad():
            means, counts = self.actor(features)
            old = self.actor.log_density(means, counts, actions)
            # Differs from the paper, which learns a value: the mean over plans of the same task needs no learning.
            grouped = rewards.unflatten(0, (-1, config.plans_per_task))
            advantages = (grouped - grouped.mean(1, keepdim=True)).flatten()
            advantages = advantages / (advantages.std() + 1e-8)
        # Differs from the paper: with a tenth of the noise a step of the same size is ten times as far, and a policy learns
        # nothing more once all of its plans fail.
        drawn, lr = means, config.lr * self.actor.deviation / config.action_std
        for _ in range(config.epochs):
            means, counts = self.actor(features)
            moved = (means.detach() - drawn) / self.actor.deviation
            if 0.5 * float(moved.square().sum(1).mean()) > config.largest_kl:
                break
            ratio = probability_ratio(self.actor.log_density(means, counts, actions), old)
            self.actor.descend(-clipped_surrogate(ratio, advantages, config.clip, config.clip).mean(), lr)
        return self.parts.finish_update({"reward_estimate": rewards.mean(), "best_reward_estimate": grouped.amax(1).mean()})


class ChosenPlan:
    """Policy of a single flight, which returns a plan that was chosen before."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.environment_spec, self.action = spec, np.zeros(spec.action.size, np.float32)

    def reset(self) -> None:
        """Do nothing: there is no memory."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the plan (A,) float32."""
        return self.action


class MFRLTraining:
    """Training loop of MFRL: the policy learns from many plans with estimated rewards, of which few are flown.

    A resume is warm: it goes on from the checkpoint with new flights, and differs from a training without a break.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], config: MFRLConfig, *, steps: int, seed: int) -> None:
        self.environment, self.config, self.steps, self.seed = environment, config, steps, seed
        self._spec = specification(environment)
        if not environment.has_wrapper_attr("propose"):
            what = f"{self._spec.name} has no plans that can be judged without a flight."
            raise InvalidSetting(what, got="none", allowed="an environment with propose(observation, action)")
        self._propose: Callable[[Observation, Array], Any] = environment.get_wrapper_attr("propose")
        self.learner = MFRL(self._spec, config, seed)
        self.model: Feasibility | None = None
        """None before the first update."""
        self._random = np.random.default_rng([seed, 1])
        self._tasks: list[Observation] = []
        self._chosen = ChosenPlan(self._spec)
        self.step = 0
        self.resumed: str | None = None
        self.stopwatch = Stopwatch()

    @property
    def policy(self) -> ActorPolicy:
        """The policy being trained."""
        return self.learner.policy

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last.

        Raises InvalidSetting if the flights before the first update exceed the steps.
        """
        config, time = self.config, self.stopwatch.time
        if self.steps <= config.first_flights:
            fix = "raise steps, or lower learner.first_flights"
            raise InvalidSetting(
                "No flight is left to learn from.", got=f"{self.steps} steps", allowed="more than first_flights", fix=fix
            )
        self.stopwatch.start()
        time("simulate", self._draw_tasks)
        if self.model is None:
            self._begin(observer)
        while self.step < self.steps:
            done = (self.step - config.first_flights) / (self.steps - config.first_flights)
            self.learner.actor.deviation = config.action_std * (config.last_action_std / config.action_std) ** done
            for _ in range(config.updates_per_flight):
                if metrics := time("update", self._learn):
                    observer.on_metrics(self.step, metrics)
            self._fly_one(observer)

    def _draw_tasks(self) -> None:
        for index in range(len(self._tasks), self.config.tasks):
            seed = episode_seed(self.seed, index)
            self._tasks.append(Rollout(self.environment, self._chosen, seed=seed).observation)

    def _plans(self, count: int, deviation: float, repeats: int = 1) -> tuple[npt.NDArray[np.int64], Tensor, Tensor, list[Any]]:
        """Let the policy plan for random tasks.

        Args:
            count: B, number of plans.
            deviation: Standard deviation of the actions.
            repeats: Plans for each task; they follow each other.

        Returns:
            Numbers of the tasks (B,), features (B, 4 S), actions (B, 2 S), and the B plans.
        """
        tasks = self._random.integers(len(self._tasks), size=count // repeats).repeat(repeats)
        encoder, device = self.learner.parts.encoder, self.learner.parts.device
        rows = {name: np.stack([self._tasks[task][name] for task in tasks]) for name in encoder.reads}
        features = encoder(encoder.tensors(encoder.stack(rows), rows, device))
        actions = self.learner.draw(features, deviation)
        executed = actions.clamp(-1.0, 1.0).cpu().numpy()
        plans = [self._propose(self._tasks[task], action) for task, action in zip(tasks, executed, strict=True)]
        return tasks, features, actions, plans

    def _begin(self, observer: TrainingObserver) -> None:
        """Take the first labels of each fidelity, and fit the model."""
        config = self.config
        tasks, _, actions, plans = self._plans(config.first_low, config.first_std)
        found = np.stack([plan.features for plan in plans])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.model = Feasibility(found[: config.model.inducing], config.model.lr, uses_low=config.fidelities == "both")
        self._label_low(plans, found)
        for index in range(config.first_flights):
            self._fly(int(tasks[index]), actions[index], plans[index], observer)
        self.model.fit(config.model.first_steps, 256, self._random)

    def _label_low(self, plans: Sequence[Any], features: npt.NDArray[np.float64]) -> None:
        assert self.model is not None
        if self.config.fidelities != "high":
            self.model.add("low", features, np.array([plan.is_feasible_for_ideal_rotors() for plan in plans]))

    def _fly(self, task: int, action: Tensor, plan: Any, observer: TrainingObserver) -> None:
        """Fly one plan: an environment step."""
        assert self.model is not None
        time = self.stopwatch.time
        self._chosen.action = action.clamp(-1.0, 1.0).cpu().numpy().astype(np.float32)
        flight = time("simulate", partial(rollout, self.environment, self._chosen, seed=episode_seed(self.seed, task)))
        self.model.add("high", plan.features[None], np.array([bool(flight.success)]))
        self.step += 1
        report_episode(observer, self.step, flight)
        observer.on_step(self.step, self)

    def _fly_one(self, observer: TrainingObserver) -> None:
        """Fly the plan whose label is least certain, or at every second step the one with the best estimate.

        Differs from the paper, which flies uncertain ones alone: a model that is sure of plans unlike all that flew would never
        be corrected.
        """
        assert self.model is not None
        tasks, _, actions, plans = self._plans(self.config.batch_size // 4, self.learner.actor.deviation)
        found = np.stack([plan.features for plan in plans])
        flies_best = self.step % 2 == 1
        chosen = int(self.estimate(plans, found).argmax() if flies_best else self.model.most_uncertain("high", found, 1)[0])
        self._fly(int(tasks[chosen]), actions[chosen], plans[chosen], observer)
        self.model.fit(self.config.model.steps, 256, self._random)

    def estimate(self, plans: Sequence[Any], features: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the expected rewards (B,) of plans.

        That is the share of time saved, weighed by the probability that a plan can be flown, and `failed_reward` by its
        opposite.
        """
        assert self.model is not None
        config = self.config
        feasible = self.model.probability("low" if config.fidelities == "low" else "high", features)
        saved = np.clip([plan.saved for plan in plans], config.reward_low, config.reward_high)
        estimated: npt.NDArray[np.float64] = feasible * saved + (1.0 - feasible) * config.failed_reward
        return estimated

    def _learn(self) -> Metrics:
        assert self.model is not None
        config = self.config
        _, inputs, actions, plans = self._plans(config.batch_size, self.learner.actor.deviation, config.plans_per_task)
        features = np.stack([plan.features for plan in plans])
        rewards = torch.from_numpy(self.estimate(plans, features).astype(np.float32)).to(inputs.device)
        chosen = self.model.most_uncertain("low", features, config.low_labels)
        self._label_low([plans[index] for index in chosen], features[chosen])
        return self.learner.learn(inputs, actions, rewards)

    def state_dict(self) -> StateDict:
        """Return the learner, the model of feasibility and the counters."""
        training = {
            "step": self.step,
            "random": self._random.bit_generator.state,
            "seconds": self.stopwatch.state_dict(),
        }
        model = {} if self.model is None else self.model.state_dict()
        return {"learner": self.learner.state_dict(), "feasibility": model, "training": training}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the first flights are flown again if they were cut."""
        self.learner.load_state_dict(state["learner"])
        training = state["training"]
        self.step = int(training["step"])
        self._random.bit_generator.state = training["random"]
        self.stopwatch.load_state_dict(training["seconds"])
        if self.step > self.config.first_flights:
            saved = state["feasibility"]
            points = np.zeros((self.config.model.inducing, np.asarray(saved["mean"]).shape[0]))
            self.model = Feasibility(points, self.config.model.lr, uses_low=self.config.fidelities == "both")
            self.model.load_state_dict(saved)
        else:
            self.step = 0
        self.resumed = "warm"
