"""Parts of tabular learners with a known baseline policy: estimated model, bounds of values, mixtures, the training loop.

S states, A actions, H steps, N visits. Rewards are in [0, 1], dynamics the same in all steps. Bounds follow from Hoeffding's
inequality as in UCB value iteration (Azar, Osband and Munos 2017, arXiv:1703.05449).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful, TrainingObserver
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.training.episode_reports import Progress
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import Array, Episode, StateDict

Table = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """Mixture of two policies (H, S, A): a whole episode is played by one of them, by the second with probability `share`."""

    first: Table
    second: Table
    share: float

    def value(self, of: Callable[[Table], float]) -> float:
        """Return the mixture's value, given a function that returns the value of each policy."""
        return (1.0 - self.share) * of(self.first) + self.share * of(self.second)


class EstimatedModel:
    """Model of a tabular MDP estimated from counts, with bounds of values that hold with high probability."""

    def __init__(self, states: int, actions: int, horizon: int, scale: float) -> None:
        self.horizon, self._scale = horizon, scale
        self.visits, self.paid = np.zeros((2, states, actions))
        self.moves = np.zeros((states, actions, states))

    def add(self, state: int, action: int, reward: float, following: int) -> None:
        """Count a step from `state` to `following` by `action`, with its reward."""
        self.visits[state, action] += 1
        self.paid[state, action] += reward
        self.moves[state, action, following] += 1

    @property
    def _means(self) -> tuple[Table, Table, Table]:
        """Rewards (S, A), transitions (S, A, S), and the half-widths (S, A) per step that is left."""
        visits = np.maximum(self.visits, 1.0)
        logarithm = np.log(2.0 * self.visits.size * self.horizon * (1.0 + self.visits.sum()))
        return self.paid / visits, self.moves / visits[..., None], self._scale * np.sqrt(logarithm / (2.0 * visits))

    def optimistic(self) -> tuple[Table, float]:
        """Return the policy (H, S, A) that maximises the upper bound, and that bound."""
        rewards, moves, widths = self._means
        states, actions = self.visits.shape
        policy, following = np.zeros((self.horizon, states, actions)), np.zeros(states)
        for step in reversed(range(self.horizon)):
            left = self.horizon - step
            bound = np.minimum(rewards + left * widths + moves @ following, left)
            bound[self.visits == 0] = left
            policy[step] = np.eye(actions)[bound.argmax(1)]
            following = bound.max(1)
        return policy, float(following[0])

    def bound(self, policy: Table, *, upper: bool = False) -> float:
        """Return a lower or upper bound of a policy's value (H, S, A) from state 0."""
        rewards, moves, widths = self._means
        sign, following = (1.0 if upper else -1.0), np.zeros(len(rewards))
        for step in reversed(range(self.horizon)):
            left = self.horizon - step
            values = np.clip(rewards + sign * left * widths + moves @ following, 0.0, left)
            values[self.visits == 0] = left if upper else 0.0
            following = (policy[step] * values).sum(1)
        return float(following[0])


def exact_estimate(model: EstimatedModel) -> EstimatedModel:
    """Return a model with the same counts whose bounds have no width, so that they equal the estimate."""
    states, actions = model.visits.shape
    found = EstimatedModel(states, actions, model.horizon, 0.0)
    found.visits, found.paid, found.moves = model.visits, model.paid, model.moves
    return found


Plan = Callable[[EstimatedModel, Table], Mixture]
"""Function that returns the mixture of the next episode, given the model so far and the baseline (H, S, A)."""


class TablePolicy(Stateful):
    """Policy of a mixture: one of its two tables acts for a whole episode."""

    def __init__(self, spec: EnvironmentSpec, mixture: Mixture, seed: int) -> None:
        self.environment_spec, self.mixture = spec, mixture
        self._random = np.random.default_rng(seed)
        self._chosen = mixture.first

    def reset(self) -> None:
        """Draw the policy of the next episode."""
        self._chosen = self.mixture.second if self._random.random() < self.mixture.share else self.mixture.first

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return an action, an int64 scalar; "deterministic" takes the more likely policy."""
        likely = self.mixture.second if self.mixture.share > 0.5 else self.mixture.first
        state, time = (int(np.argmax(observation[name])) for name in ("state", "time"))
        row = (likely if deterministic else self._chosen)[time, state]
        return np.asarray(row.argmax() if deterministic else self._random.choice(len(row), p=row))

    @override
    def state_dict(self) -> StateDict:
        return {"random": self._random.bit_generator.state, "chosen": self._chosen.copy()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.bit_generator.state, self._chosen = state["random"], np.array(state["chosen"])


class TabularTraining(Progress):
    """Training loop of tabular learners: plans before each episode, plays it, counts its steps.

    A resume begins a new episode.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], plan: Plan, *, bonus_scale: float, steps: int, seed: int) -> None:
        """plan: returns what the next episode plays. bonus_scale: factor of the half-widths of bounds."""
        self._spec = specification(environment)
        states, horizon = table_of(self._spec)
        super().__init__(steps=steps)
        self.environment, self.seed, self._plan = environment, seed, plan
        self.model = EstimatedModel(states, self._spec.action.size, horizon, bonus_scale)
        self.baseline = baseline_of(environment, self._spec, states, horizon)
        """(H, S, A)"""
        self.policy = TablePolicy(self._spec, Mixture(self.baseline, self.baseline, 0.0), seed)
        self.baseline_episodes = 0

    def run(self, observer: TrainingObserver) -> None:
        """Train whole episodes as long as one fits into the steps."""
        self.stopwatch.start()
        while self.step + self.model.horizon <= self.steps:
            self.policy.mixture = self.stopwatch.time("update", lambda: self._plan(self.model, self.baseline))
            episode = self.stopwatch.time("simulate", self._play)
            self.step += len(episode)
            self.reports.report(observer, self.step, episode)
            is_baseline = self.policy.mixture.first is self.baseline and self.policy.mixture.share == 0.0
            self.baseline_episodes += is_baseline
            shares = {"train/baseline_share": self.baseline_episodes / self.episodes}
            shares |= {"train/lower_bound": self.policy.mixture.value(self.model.bound)}
            observer.on_metrics(self.step, shares)
            observer.on_step(self.step, self)

    def _play(self) -> Episode:
        episode = rollout(self.environment, self.policy, seed=episode_seed(self.seed, self.episodes))
        for step in map(episode.transition, range(len(episode))):
            if not 0.0 <= step.reward <= 1.0:
                what = f"{self._spec.name} pays more than the bounds allow."
                raise InvalidSetting(what, got=step.reward, allowed="rewards from 0 to 1")
            before, after = (int(np.argmax(each["state"])) for each in (step.observation, step.next_observation))
            self.model.add(before, int(step.action), step.reward, after)
        return episode

    def state_dict(self) -> StateDict:
        """Return counts, counters and the policy."""
        counts = {"visits": self.model.visits.copy(), "paid": self.model.paid.copy(), "moves": self.model.moves.copy()}
        mixture = self.policy.mixture
        played = {"first": mixture.first.copy(), "second": mixture.second.copy(), "share": mixture.share}
        training = self.counters() | {"baseline_episodes": self.baseline_episodes, "policy": self.policy.state_dict()}
        return {"counts": counts, "mixture": played, "training": training}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the next episode is a new one."""
        model, training, played = self.model, state["training"], state["mixture"]
        model.visits, model.paid, model.moves = (np.array(state["counts"][name]) for name in ("visits", "paid", "moves"))
        self.policy.mixture = Mixture(np.array(played["first"]), np.array(played["second"]), float(played["share"]))
        self.load_counters(training)
        self.baseline_episodes = int(training["baseline_episodes"])
        self.policy.load_state_dict(training["policy"])


def table_of(spec: EnvironmentSpec) -> tuple[int, int]:
    """Return the numbers of states S and steps H of a tabular environment; raises InvalidSetting for another one."""
    observed = spec.observation
    if not spec.action.is_discrete or set(observed) != {"state", "time"}:
        raise InvalidSetting(
            f"{spec.name} is no table.",
            got=", ".join(observed),
            allowed="one-hot observations state and time, and discrete actions",
            fix="take one of `robo-rl envs tabular`, or another learner",
        )
    return observed["state"].size, observed["time"].size


def baseline_of(environment: gymnasium.Env[Any, Any], spec: EnvironmentSpec, states: int, horizon: int) -> Table:
    """Return the scripted policy of an environment as a table (H, S, A); raises InvalidSetting if it has none."""
    if not environment.has_wrapper_attr("scripted_policy"):
        raise InvalidSetting(f"{spec.name} has no scripted policy.", got="none", allowed="a baseline policy")
    policy, found = environment.get_wrapper_attr("scripted_policy")(0), np.zeros((horizon, states, spec.action.size))
    for time in range(horizon):
        for state in range(states):
            seen = {"state": np.eye(states, dtype=np.float32)[state], "time": np.eye(horizon, dtype=np.float32)[time]}
            found[time, state, int(policy.act(seen, deterministic=True))] = 1.0
    return found
