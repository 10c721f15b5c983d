"""Proximal policy optimisation: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", arXiv:1707.06347.

Equation numbers are those of that paper; GAE is Schulman et al. 2016, arXiv:1506.02438. T steps, N environments, B rows of
a minibatch. At equal settings it is the algorithm of Stable-Baselines3's PPO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from robo_policies.learners.clipped_surrogate import ClippedSurrogate, Descent, divergence
from robo_policies.learners.normalization import RewardNormalizer, RunningReturns, Unchanged
from robo_policies.learners.ppo_policy import PPOPolicy
from robo_policies.learners.ppo_settings import SCHEDULES, PPOSettings
from robo_policies.learners.trajectories import Rows, Trajectories, flat
from robo_policies.networks.action_heads import head_of
from robo_policies.networks.encoders import require_finite_data
from robo_policies.networks.flat_adam import FlatAdam
from robo_policies.networks.senses import Senses
from robo_policies.networks.tanh_towers import Floats, TanhTowers
from robo_rl.collecting.rollouts import CollectedRollout
from robo_rl.on_policy import VectorStep
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array, Metrics, StateDict, StepRewards

FEWEST = 2
"""Rows that a rollout must have: advantages are normalised."""


class PPO(ClippedSurrogate):
    """Collects T steps of N environments, then takes some passes of gradient steps over them (algorithm 1)."""

    def __init__(self, spec: EnvironmentSpec, config: PPOSettings, seed: int, *, rollouts: int = 0) -> None:
        """`rollouts` are those of the training, over which the learning rate falls; 0: it stays."""
        children = np.random.SeedSequence(seed).spawn(4)
        initial, self._acting, self._shuffling, aside = (np.random.default_rng(child) for child in children)
        super().__init__(config.clip_range)
        self.config = config
        self.senses = senses = Senses(
            spec,
            convolutions=config.convolutions,
            privileged_critic=config.privileged_critic,
            normalize=config.normalize_observations,
        )
        self.sight, self.head = senses.sight, head_of(spec, config.policy)
        inputs, extra = self.sight.features + senses.size, self.head.parameters + self.sight.parameters
        outputs, privileged = self.head.outputs, senses.privileged
        self.networks = TanhTowers(inputs, config.hidden, outputs, initial, extra=extra, privileged=privileged)
        self.head_parameters[:] = config.initial_log_std
        learnt = self.networks.extra, self.networks.extra_gradient
        self.sight.bind(*(array[self.head.parameters :] for array in learnt), initial)
        self.rewards: RewardNormalizer = RunningReturns(config.discount) if config.normalize_rewards else Unchanged()
        self.trajectories = Trajectories(config.steps_per_env, config.num_envs, senses.size, spec.action, senses.pictures)
        read = spec.without_pictures(but=[picture.name for picture in senses.pictures])
        self.policy = PPOPolicy(read, self, aside)
        self.updates = 0
        """Passes over rollouts, as Stable-Baselines3 counts them."""
        self.rollouts = 0
        """Rollouts that were learnt from."""
        self._planned, networks = rollouts, self.networks
        self._optimizer = FlatAdam(networks.parameters, networks.gradient, lr=config.lr, max_norm=config.max_gradient_norm)

    # collecting: section 5

    @property
    def is_ready(self) -> bool:
        """True once T steps are there."""
        return self.trajectories.is_full

    @property
    def is_collecting(self) -> bool:
        """True while a rollout is unfinished."""
        return self.trajectories.length > 0

    def begin(self, observations: Mapping[str, Array]) -> None:
        """All environments begin an episode; an unfinished rollout is forgotten."""
        vectors = self._vectors("observations", observations)
        self.rewards.restart(self.config.num_envs)
        self.senses.fit(vectors)
        self.trajectories.begin(self.senses.scaled(vectors), observations)

    def act(self) -> Array:
        """Returns actions (N, ...) for the newest observations."""
        outputs = self.networks.act(self.sight.look(self.trajectories.newest))
        actions = self.head.draw(outputs, self.head_parameters, self._acting)
        self.trajectories.actions[self.trajectories.length] = actions
        return self.head.executed(actions)

    def observe(self, step: VectorStep) -> None:
        """Takes in what the actions led to; raises NonFiniteUpdate, changing nothing, where that is not finite."""
        given = np.zeros(self.config.num_envs) if step.rewards is None else step.rewards
        require_finite_data({"rewards": given}, self.updates, "rollout")
        if step.final_observations:
            self._vectors("final observations", step.final_observations)
        observations = self._vectors("observations", step.observations)
        self.senses.fit(observations)
        self._remember(step, observations)

    def take_in(self, rollout: CollectedRollout) -> None:
        """Takes in a whole rollout of others, who acted with the policy as it is now.

        Differs from `observe`: all of it is scaled by the moments from before, with which the others acted, and is merged into
        them afterwards, because the others do not know each other's observations. Raises NonFiniteUpdate as `observe` does.
        """
        require_finite_data({"rewards": rollout.rewards}, self.updates, "rollout")
        if rollout.final_observations:
            self._vectors("final observations", rollout.final_observations)
        steps = [*rollout.steps()]
        first = {name: values[0] for name, values in rollout.observations.items()}
        vectors = [self._vectors("observations", seen) for seen in (first, *(step.observations for step in steps))]
        if rollout.begins:
            self.rewards.restart(self.config.num_envs)
        self.trajectories.begin(self.senses.scaled(vectors[0]), first)
        for step, actions, observed in zip(steps, rollout.actions, vectors[1:], strict=True):
            self.trajectories.actions[self.trajectories.length] = actions
            self._remember(step, observed)
        for observed in vectors if rollout.begins else vectors[1:]:
            self.senses.fit(observed)

    def _remember(self, step: VectorStep, observations: Floats) -> None:
        """Stores what the actions led to; its observations come as vectors, too, not yet scaled."""
        ended = step.terminated | step.truncated
        final_values = np.zeros(len(ended), np.float32)
        if step.final_observations:
            final_values[step.truncated & ~step.terminated] = self._final_values(step.final_observations)
        rewards = np.zeros_like(final_values) if step.rewards is None else self.rewards(step.rewards, ended)
        self.trajectories.add(self.senses.scaled(observations), rewards, ended, final_values, step.observations)

    def reward(self, rewards: StepRewards) -> None:
        """Take in the rewards of the T N steps of a rollout that came without them, step after step."""
        labels, count = rewards.labels, self.config.num_envs
        paid = np.where(labels.valid, labels.values, np.float32(0)).reshape(-1, count)
        ends = rewards.ends.reshape(-1, count)
        data, taken = self.trajectories, slice(len(paid))
        data.ended[taken] |= ends
        data.final_values[taken][ends] = 0.0  # an end as the model sees it, although the clock may have struck
        for step, (values, ended) in enumerate(zip(paid, data.ended[taken], strict=True)):
            data.rewards[step] = self.rewards(values, ended)  # one that is missing, a zero, counts for the scale alone
        data.valid[taken] = labels.valid.reshape(-1, count)

    def _vectors(self, name: str, observations: Mapping[str, Array]) -> Floats:
        vectors = self.senses.vectors(observations)
        require_finite_data({name: vectors}, self.updates, "rollout")
        return vectors

    def _final_values(self, observations: Mapping[str, Array]) -> Floats:
        """Returns V of the last observations of the K episodes that were cut, (K,)."""
        return self.networks.value(self.senses.inputs(observations))

    # learning

    def advantages(self, values: Floats) -> Floats:
        """Returns (T, N), eq. 11 and 12 (GAE, eq. 16); `values` (T+1, N) holds the values of all observations.

        Differs from eq. 12: where a time limit cut an episode, the value of its last observation stands for what would have
        followed, as in Stable-Baselines3, because the limit is no property of the task. Before a step without a reward the sum
        ends with the value of its state; the step itself is not learnt from. T is smaller for a rollout that the end of the
        training shortens.
        """
        data, gamma, taken = self.trajectories, np.float32(self.config.discount), slice(len(values) - 1)
        following = np.where(data.ended[taken], data.final_values[taken], values[1:])
        residuals = data.rewards[taken] + gamma * following - values[:-1]  # eq. 12
        decay = gamma * np.float32(self.config.gae_lambda) * ~data.ended[taken]
        advantages, total = np.empty_like(residuals), np.zeros_like(residuals[0])
        for step in reversed(range(len(residuals))):
            total = np.where(data.valid[step], residuals[step] + decay[step] * total, np.float32(0.0))  # eq. 11
            advantages[step] = total
        return advantages

    def update(self) -> Metrics:
        """Takes `epochs` passes over the rollout, then begins the next one; returns metrics with Stable-Baselines3's tags.

        Learns nothing from a rollout without any valid reward, or of a single row.
        """
        config, valid = self.config, self.trajectories.valid[: self.trajectories.length]
        if valid.size < FEWEST or not valid.any():
            self._next_rollout()
            return {}
        self._optimizer.lr = self.learning_rate
        with np.errstate(over="ignore", invalid="ignore"):  # the optimiser refuses what is not finite, in better words
            rows, values = self._rows()
            steps: list[Descent] = []
            for _ in range(config.epochs):
                taken = [self.descend(part) for part in rows.minibatches(config.batch_size, self._shuffling)]
                steps += taken
                self.updates += 1
                if config.target_kl and divergence(np.concatenate([one.ratio for one in taken])) > config.target_kl:
                    break  # Differs from Stable-Baselines3, which stops within a pass: because passes are what is counted
        metrics = self._metrics(rows, values, steps, sum(len(one.ratio) for one in taken))
        self._next_rollout()
        return metrics

    @property
    def learning_rate(self) -> float:
        """Learning rate of the present rollout: the whole for the first one, and some still for the last."""
        if not self._planned:
            return self.config.lr
        return self.config.lr * SCHEDULES[self.config.lr_schedule](min(1.0, self.rollouts / self._planned))

    @property
    def head_parameters(self) -> Floats:
        """Parameters of the distribution of actions."""
        return self.networks.extra[: self.head.parameters]

    def _next_rollout(self) -> None:
        self.trajectories.restart()
        self.rollouts += 1

    def descend(self, rows: Rows) -> Descent:
        """Takes one gradient step on minus eq. 9, averaged over the rows: surrogate - c1 value loss + c2 entropy.

        Where pictures would fill the memory the gradient is summed over parts of the rows.
        """
        gradient, total = self.networks.gradient, len(rows.returns)
        first, *others = rows.parts(self.sight.most_rows)
        seen = self._differentiate(first, total)
        for part in others:
            before = gradient.copy()
            seen = seen.joined(self._differentiate(part, total))
            gradient += before
        self._optimizer.step(self.updates)
        return seen

    def _differentiate(self, rows: Rows, total: int) -> Descent:
        """Writes the gradient of what the rows add to the mean over `total` rows."""
        config, head, networks, share = self.config, self.head, self.networks, np.float32(1.0 / total)
        outputs, values = networks.forward(self.sight.forward(rows.inputs))
        ratio = self.ratio(head.log_density(outputs, self.head_parameters, rows.actions), rows.log_densities)
        slopes = -share * self.surrogate_slope(ratio, rows.advantages)
        by_outputs, networks.extra_gradient[: head.parameters] = head.backward(
            outputs, self.head_parameters, rows.actions, slopes, -config.entropy_coefficient / total
        )
        value_slopes = share * np.float32(config.value_coefficient) * self.value_slope(values, rows.returns)
        networks.backward(by_outputs, value_slopes)
        if self.sight.features:
            self.sight.backward(networks.input_gradient(self.sight.features))
        return Descent(ratio, rows.advantages, self.value_loss(values, rows.returns))

    def _rows(self) -> tuple[Rows, Floats]:
        """Returns the rows to learn from, environment after environment, with what the policy that acted makes of them.

        Beside them the values (B,) of their observations.
        """
        data, steps = self.trajectories, self.trajectories.length
        inputs = self.sight.look(data.everything).reshape(steps + 1, self.config.num_envs, -1)
        values = self._by_parts(self.networks.value, inputs)
        advantages, actions = self.advantages(values), flat(data.actions[:steps])
        outputs = self._by_parts(self.networks.act, flat(inputs[:-1]))
        log_densities = self.head.log_density(outputs, self.head_parameters, actions)
        rows = Rows(data.acted_on, actions, log_densities, flat(advantages), flat(advantages + values[:-1]))
        return rows[data.learnt], flat(values[:-1])[data.learnt]

    def _by_parts(self, function: Callable[[Floats], Floats], inputs: Floats) -> Floats:
        """Returns function(inputs) over all leading axes, a minibatch at a time, which stays in the cache and in one thread."""
        rows = inputs.reshape(-1, inputs.shape[-1])
        parts = [
            function(rows[start : start + self.config.batch_size]) for start in range(0, len(rows), self.config.batch_size)
        ]
        joined = np.concatenate(parts)
        return joined.reshape(*inputs.shape[:-1], *joined.shape[1:])

    def _metrics(self, rows: Rows, values: Floats, steps: list[Descent], last_pass: int) -> Metrics:
        ratio, advantages, value_losses = (np.concatenate([getattr(step, name) for step in steps]) for name in vars(steps[0]))
        config, extra = self.config, self.head_parameters
        entropy = self.head.entropy(self._by_parts(self.networks.act, self.sight.look(rows.inputs)), extra).mean()
        surrogate, value_loss = self.surrogate(ratio, advantages).mean(), value_losses.mean()
        variance, last = float(np.var(rows.returns)), ratio[-last_pass:]  # as Stable-Baselines3 has it
        scalars = {
            "loss": -surrogate - config.entropy_coefficient * entropy + config.value_coefficient * value_loss,
            "policy_gradient_loss": -surrogate,
            "value_loss": value_loss,
            "entropy_loss": -entropy,
            "approx_kl": divergence(last),
            "clip_fraction": (np.abs(ratio - 1.0) > config.clip_range).mean(),
            "explained_variance": 1.0 - np.var(rows.returns - values) / variance if variance > 0 else 0.0,
            "n_updates": self.updates,
            "learning_rate": self._optimizer.lr,
            "clip_range": config.clip_range,
        }
        scalars |= {"std": np.exp(extra).mean()} if len(extra) else {}
        return {f"train/{name}": float(value) for name, value in scalars.items()}

    def state_dict(self) -> StateDict:
        """Returns networks, optimiser, normalisation, the unfinished rollout, generators and the counter."""
        return {
            "parameters": self.networks.parameters.copy(),
            "optimizer": self._optimizer.state_dict(),
            "observations": self.senses.state_dict(),
            "rewards": self.rewards.state_dict(),
            "trajectories": self.trajectories.state_dict(),
            "generators": {name: value.bit_generator.state for name, value in self._generators().items()},
            "policy": self.policy.state_dict(),
            "updates": self.updates,
            "rollouts": self.rollouts,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.networks.parameters[:] = state["parameters"]
        self.senses.load_state_dict(state["observations"])
        for name in ("rewards", "trajectories", "policy"):
            getattr(self, name).load_state_dict(state[name])
        self._optimizer.load_state_dict(state["optimizer"])
        for name, generator in self._generators().items():
            generator.bit_generator.state = state["generators"][name]
        self.updates = int(state["updates"])
        self.rollouts = int(state.get("rollouts", self.updates // self.config.epochs))  # not counted before rates could fall

    def _generators(self) -> dict[str, np.random.Generator]:
        return {"acting": self._acting, "shuffling": self._shuffling}
