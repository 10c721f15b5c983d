"""Bresa: a fast safety reflex beside a slow task policy, for contact tasks with a stiffness in the action.

After the reflex of "Bresa: Bio-inspired Reflexive Safe Reinforcement Learning for Contact-Rich Robotic Tasks" (2025), of which
no code was found, built from Thananjeyan et al. 2021, "Recovery RL", arXiv:2010.15920, whose equations are cited. The task
policy, a soft actor-critic, chooses an action for K steps of the environment. At every step a critic judges the risk of going
on with it; above a threshold a recovery policy acts instead. B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from robo_policies.learners.own_loop import OwnLoop
from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import SAC, SACSettings
from robo_policies.networks.actor_critic import Critics
from robo_policies.networks.regression_actors import DeterministicActor
from robo_rl.errors import UnknownName, require_allowed
from robo_rl.extras import Costs
from robo_rl.protocols.components import Policy, Stateful
from robo_rl.protocols.contract import OWN, Feature, Needs
from robo_rl.protocols.planning import replan
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.mixing import SymmetricReplay
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.spec.cost import cost_names, costs_of
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.training.episode_loop import EpisodeLoop
from robo_rl.types import DIVERGED, Array, Batch, Episode, Metrics, StateDict, Transition


@dataclass(frozen=True)
class BresaConfig(SACSettings, OwnLoop):
    """Settings of Bresa (2025, after Recovery RL, arXiv:2010.15920): SAC as slow task policy, and a fast reflex.

    The fields of SAC steer the task policy; `discount` and `n_step` count its actions. Bresa's own set the rate of both, the
    risk at which the recovery policy acts, and the learning of risk and recovery.
    """

    needs = Needs((OWN,), frozenset({Feature.CONTINUOUS}), {Feature.REWARD: "leave reward out"})
    takes_demonstrations = True

    hold: int = 20
    """K, environment steps of one task action: 20 at 200 Hz are 10 Hz."""
    reflex_every: int = 1
    """Environment steps between two checks of the reflex; `hold` for a reflex as slow as the task policy."""
    risk_threshold: float = 0.3
    """Risk above which the recovery policy acts; 1 switches the reflex off."""
    release: float = 0.5
    """The reflex ends at this share of the threshold, so that it does not chatter."""
    least_recovery: int = 4
    """Environment steps that a reflex lasts at least."""
    reflex_starts: int = 0
    """Environment step of the training from which on the reflex acts, after `learning_starts`. Later for tasks that are hard to
    learn for a policy that is held back, if violations do no harm, as in simulation."""
    cost: str = ""
    """Constraint cost that counts as a violation in any step where it is above 0; by default all of the environment's."""
    risk_discount: float = 0.1
    """Discount of the risk for one task action; that of an environment step is its K-th root: 0.1 in 20 steps looks 9 steps
    ahead."""
    risk_updates: int = 1
    """Updates of risk critic and recovery policy per task action."""
    risk_pretraining: int = 1_000
    """Updates of risk critic and recovery policy before the reflex acts for the first time, on random actions and recorded
    episodes."""
    violations: float = 0.25
    """Share of violations in a batch of the risk critic, if there are any; they are rare in the memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {name: getattr(self, name) for name in ("hold", "reflex_every", "least_recovery", "risk_updates")}
        allowed = {name: (value >= 1, "1 or more") for name, value in counts.items()}
        allowed["reflex_every"] = (1 <= self.reflex_every <= self.hold, "1 to hold")
        allowed |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("risk_pretraining", "reflex_starts")}
        allowed["replay.n_step"] = (self.replay.n_step == 1, "1")
        allowed["violations"] = (0.0 <= self.violations < 1.0, "0 to below 1")
        shares = {name: getattr(self, name) for name in ("risk_threshold", "release", "risk_discount")}
        require_allowed(self, allowed | {name: (0.0 <= value <= 1.0, "0 to 1") for name, value in shares.items()})

    @property
    def fast_discount(self) -> float:
        """Discount of the risk for one environment step."""
        return float(self.risk_discount ** (1.0 / self.hold))

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> Bresa:
        return Bresa(spec, self, seed)

    @override
    def loop(self) -> type[BresaTraining]:
        return BresaTraining

    @override
    def policy_of(self, spec: EnvironmentSpec, seed: int, state: StateDict) -> Policy:
        learner = self.build(spec, seed)
        learner.load_state_dict(state["learner"])
        return ReflexPolicy(learner)


class Bresa(Learned):
    """Learner of Bresa: a soft actor-critic for the task, with a risk critic and a recovery policy."""

    def __init__(self, spec: EnvironmentSpec, config: BresaConfig, seed: int) -> None:
        names = cost_names(spec.costs)
        if config.cost and config.cost not in names:
            raise UnknownName(f"cost of {spec.name}", config.cost, names)
        self.risky = [index for index, name in enumerate(names) if config.cost in ("", name)]
        """Places of the costs that are violations, in alphabetical order of all."""
        self.config, self.task = config, SAC(spec, config, seed)
        self.parts = parts = self.task.parts
        inputs, actions = parts.encoder.size, spec.action.size
        risk_critic = Critics(parts.networks, inputs + actions, 2, layer_norm=False)
        self.risk_critic = parts.add("risk_critic", risk_critic, config.lr)
        self.target_risk_critic = parts.add_target("target_risk_critic", self.risk_critic)
        self.recovery = parts.add("recovery", DeterministicActor(parts.networks, inputs, actions, 0.0), config.lr)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the task policy (SAC) on a batch of its own actions.

        Returns metrics, empty if none are due.
        """
        return self.task.update(batch)

    def update_risk(self, batch: Batch) -> dict[str, Tensor]:
        """Take one gradient step of the risk critic and of the recovery policy, on environment steps.

        Returns losses and other figures for the log.
        """
        parts, config = self.parts, self.config
        data = parts.batch(batch)
        observations = parts.encoder(data.observations).detach()
        violated = (data.extras["costs"][:, self.risky] > 0.0).any(1).float()
        logits = self.risk_critic(observations, data.actions)
        targets = self.risk_target(parts.encoder(data.next_observations), data.actions, violated, data.masks)
        # Differs from Recovery RL, eq. 1: cross-entropy in place of the square, with the same minimum, because risks are
        # probabilities and most are near 0.
        self.risk_critic.descend(functional.binary_cross_entropy_with_logits(logits, targets.expand_as(logits)))
        recovery_risk = torch.sigmoid(self.risk_critic(observations, self.recovery(observations))).amax(0)
        self.recovery.descend(recovery_risk.mean())
        parts.track(self.target_risk_critic, self.risk_critic, config.tau)
        return {"risk": targets.mean(), "recovery_risk": recovery_risk.mean().detach()}

    @torch.no_grad()
    def risk_target(self, following: Tensor, actions: Tensor, violated: Tensor, masks: Tensor) -> Tensor:
        """Return the targets (B,) of the risk critic: c + (1 - c) gamma Q_risk(s', a') (Recovery RL, eq. 1).

        The larger of two target critics counts.

        Differs from Recovery RL: a' is the same action with probability 1 - 1 / K, else the task policy's, because a task
        action lasts K steps. With a fresh action at every step, an action of 5 ms would hardly matter to its own risk.
        """
        fresh, _ = self.task.actor.sample(following, self.parts.generator)
        ends = 1.0 / self.config.hold
        held, chosen = (torch.sigmoid(self.target_risk_critic(following, each)).amax(0) for each in (actions, fresh))
        return violated + (1.0 - violated) * self.config.fast_discount * masks * ((1.0 - ends) * held + ends * chosen)

    @torch.no_grad()
    def judge(self, observation: Observation, action: Array) -> tuple[float, Tensor]:
        """Return the risk of an action (A,), 0 to 1, and the features (1, F) for `recover`."""
        encoder, device = self.parts.encoder, self.parts.device
        rows = {name: np.array(observation[name])[None] for name in encoder.reads}
        features = encoder(encoder.tensors(encoder.stack(rows, is_acting=True), rows, device))
        logits = self.risk_critic(features, torch.from_numpy(action[None]).to(device))
        return float(torch.sigmoid(logits.amax())), features

    @torch.no_grad()
    def recover(self, features: Tensor) -> Array:
        """Return the recovery policy's action (A,) for features (1, F)."""
        action: Array = self.recovery(features)[0].cpu().numpy()
        return action


class ReflexPolicy(Stateful):
    """Policy of Bresa: holds each action of the task policy for K steps; at risk the recovery policy acts instead."""

    def __init__(self, learner: Bresa, proposals: Policy | None = None, config: BresaConfig | None = None) -> None:
        """proposals, config: task policy and settings of the reflex, if not the learner's."""
        self.environment_spec = learner.policy.environment_spec
        self.learner, self._config = learner, learner.config if config is None else config
        self.proposals: Any = learner.policy if proposals is None else proposals
        self.is_on = self._config.risk_threshold < 1.0
        self.reset()

    def reset(self) -> None:
        """Forget the held action and the reflex."""
        self.proposals.reset()
        self._forget()

    def replan(self) -> None:
        """Forget the held action and the reflex in the middle of an episode, after an action that was not the policy's own."""
        replan(self.proposals)
        self._forget()

    def _forget(self) -> None:
        self._step, self._recovering = 0, 0  # the second counts the steps of a reflex up to the next check
        self.task_action: Array = np.zeros(0, np.float32)
        """Proposed by the task policy and held, executed or not."""
        self._action = self.task_action

    @property
    def is_recovering(self) -> bool:
        """True while the recovery policy acts in place of the task policy."""
        return self._recovering > 0

    @property
    def is_due(self) -> bool:
        """True if the task policy chooses a new action at the next step."""
        return self._step % self._config.hold == 0

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the action (A,) of one environment step."""
        if self.is_due:
            self.task_action = np.asarray(self.proposals.act(observation, deterministic=deterministic), np.float32)
            self._action = self._action if self.is_recovering else self.task_action
        if self.is_on and self._step % self._config.reflex_every == 0:
            self._check(observation)
        self._step += 1
        return self._action

    def _check(self, observation: Observation) -> None:
        config = self._config
        risk, features = self.learner.judge(observation, self.task_action)
        if not self.is_recovering:
            self._recovering = config.reflex_every if risk > config.risk_threshold else 0
        elif self._recovering >= config.least_recovery and risk <= config.release * config.risk_threshold:
            self._recovering = 0
        else:
            self._recovering += config.reflex_every
        self._action = self.learner.recover(features) if self.is_recovering else self.task_action

    @override
    def state_dict(self) -> StateDict:
        counters = {"step": self._step, "recovering": self._recovering}
        actions = {"task_action": self.task_action.copy(), "action": self._action.copy()}
        return {"proposals": self.proposals.state_dict()} | counters | actions

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.proposals.load_state_dict(state["proposals"])
        self._step, self._recovering = int(state["step"]), int(state["recovering"])
        self.task_action, self._action = (np.asarray(state[name], np.float32) for name in ("task_action", "action"))


class BresaTraining(EpisodeLoop):
    """Training loop of Bresa: episodes at the environment's rate, in which K steps are one step of the task policy."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        config: BresaConfig,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
    ) -> None:
        super().__init__(environment, steps=steps, seed=seed)
        spec, self.config = self.environment_spec, config
        self.learner = Bresa(spec, config, seed)
        self.replay = ReplayBuffer(spec, config.replay.capacity, seed)
        """Replay of task actions."""
        self.risk_replay = ReplayBuffer(spec, config.replay.capacity, seed + 1, extras=(Costs(),))
        """Risk replay of environment steps."""
        self.violations = ReplayBuffer(spec, max(2, config.replay.capacity // 4), seed + 2, extras=(Costs(),))
        """The same steps, those with a violation alone."""
        self._explorer = RandomPolicy(spec, seed)
        self._policy = self._acting = ReflexPolicy(self.learner)
        for episode in demonstrations:
            self.risk_replay.add_episode(episode)
            for index in range(len(episode)):
                self._keep_violation(episode.transition(index))
        self._is_pretrained = False
        self._held = list[Transition]()  # steps of the task action under way
        self._recovered = 0  # steps of the episode

    @property
    @override
    def policy(self) -> ReflexPolicy:
        """The task policy with its reflex."""
        return self._policy

    @override
    def choose(self) -> ReflexPolicy:
        explores = self.step < self.config.replay.learning_starts
        self._acting = ReflexPolicy(self.learner, self._explorer if explores else None)
        self._acting.is_on &= not explores and self.step >= self.config.reflex_starts  # before, the critic sees what follows
        return self._acting

    @override
    def begin(self, observation: Observation) -> None:
        self._held, self._recovered = [], 0
        self.replay.begin(observation)
        self.risk_replay.begin(observation)

    @override
    def see(self, transition: Transition) -> Metrics:
        self._remember(transition)
        self._held.append(transition)
        self._recovered += self._acting.is_recovering
        is_over = transition.terminated or transition.truncated
        if not (is_over or self._acting.is_due or self.step == self.steps):
            return {}
        if transition.info.get("stop_reason") == DIVERGED or not (is_over or self._acting.is_due):
            self.replay.cut()  # a task action that was cut teaches nothing
        else:
            self.replay.add(self._task_step())
        self._held = []
        return self.stopwatch.time("update", self._learn)

    @override
    def finish(self, episode: Episode) -> Metrics:
        return {"train/recovering": self._recovered / len(episode)}

    def _task_step(self) -> Transition:
        """Return the steps of one task action as one step of the task policy.

        The action is the mean of those executed: the held one, unless the environment changes actions. If the reflex acted, it
        stays the proposed one: the task policy learns from being stopped by the reflex.
        """
        first, last = self._held[0], self._held[-1]
        rate = self.config.discount ** (1.0 / self.config.hold)
        gained = sum(rate**index * each.reward for index, each in enumerate(self._held))
        proposed = self._acting.task_action
        executed = np.stack([each.action for each in self._held])
        if not all(np.array_equal(each.policy_action, proposed) for each in self._held):
            action = proposed
        elif (executed == executed[0]).all():
            action = executed[0]
        else:
            action = executed.mean(axis=0)
        return replace(last, observation=first.observation, action=action, reward=gained, policy_action=proposed)

    def _remember(self, step: Transition) -> None:
        if step.info.get("stop_reason") == DIVERGED:
            self.risk_replay.cut()
            return
        self.risk_replay.add(step)
        self._keep_violation(step)

    def _keep_violation(self, step: Transition) -> None:
        costs = costs_of(step.info)
        if any(costs[name] > 0.0 for index, name in enumerate(sorted(costs)) if index in self.learner.risky):
            self.violations.begin(step.observation)
            self.violations.add(replace(step, truncated=True))

    def _learn(self) -> Metrics:
        config = self.config
        if self.step < config.replay.learning_starts or not len(self.replay):
            return {}
        count = config.risk_updates if self._is_pretrained else config.risk_pretraining
        self._is_pretrained = True
        found: dict[str, Tensor] = {}
        if config.risk_threshold < 1.0:
            for _ in range(count):
                found = self.learner.update_risk(self._risk_batch())
        metrics = self.learner.update(self.replay.sample(config.batch_size, 1, config.discount))
        return {**metrics, **{f"train/{name}": float(value) for name, value in found.items()}} if metrics else {}

    def _risk_batch(self) -> Batch:
        """Return environment steps, a share of them violations."""
        config = self.config
        if not len(self.violations) or config.violations == 0.0:
            return self.risk_replay.sample(config.batch_size, 1, 1.0)
        return SymmetricReplay(self.risk_replay, self.violations, config.violations).sample(config.batch_size, 1, 1.0)

    @override
    def state_dict(self) -> StateDict:
        """Return the learner, its memories and the counters."""
        parts = {name: getattr(self, name).state_dict() for name in ("learner", "replay", "risk_replay", "violations")}
        own = {"is_pretrained": self._is_pretrained, "explorer": self._explorer.state_dict()}
        return parts | {"training": self.counters() | own}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the next episode is a new one."""
        for part in ("learner", "replay", "risk_replay", "violations"):
            getattr(self, part).load_state_dict(state[part])
        training = state["training"]
        self.load_counters(training)
        self._is_pretrained = bool(training["is_pretrained"])
        self._explorer.load_state_dict(training["explorer"])
