"""Segments: steps of one episode, which collectors send to off-policy learners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.collectors.collector_pool import Collector
from robo_rl.extras import Extra, step_columns
from robo_rl.protocols.components import Policy, TransferablePolicy
from robo_rl.protocols.planning import replan
from robo_rl.rollout.episode import RandomPolicy, Rollout
from robo_rl.spec.cost import costs_of
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import ActionSource, StateDict, Transition

EPISODES = 10**6  # more than one collector ever begins: the seeds of the next one follow


class SegmentCollector(Collector):
    """Collector of off-policy training: acts in one environment, episode after episode, and returns parts of episodes."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        policy: TransferablePolicy,
        *,
        seed: int,
        birth: int,
        extras: Sequence[Extra] = (),
    ) -> None:
        """Prepare the first episode.

        Args:
            environment: The environment.
            policy: Policy that receives the parameters.
            seed: Seed of the training.
            birth: Number of this collector, unique in the training, which determines the seeds of its episodes.
            extras: Extras of the learner, whose columns are sent with each step.
        """
        self._extras = extras
        self._environment, self._policy, self._seed, self._birth = environment, policy, seed, birth
        self._random = RandomPolicy(policy.environment_spec, episode_seed(seed + 2, birth))  # no seed of an environment
        self._rollout: Rollout | None = None
        self._return, self._episodes = 0.0, 0
        self._costs: dict[str, float] = {}
        self._acts_at_random = True

    @override
    def load_parameters(self, parameters: StateDict) -> None:
        """Load parameters, also in the middle of an episode."""
        self._policy.load_parameters(parameters)

    @override
    def handle(self, request: StateDict) -> StateDict:
        """Take request["steps"] steps, fewer if the episode ends before, and return them as the content of a Segment."""
        self._acts_at_random = request["is_random"]
        begins = self._rollout is None
        if self._rollout is None:
            seed = episode_seed(self._seed, self._birth * EPISODES + self._episodes)
            self._rollout, self._return = Rollout(self._environment, _Acting(self), seed=seed), 0.0
            self._costs = {}
            self._episodes += 1
        steps: list[Transition] = []
        while len(steps) < request["steps"] and not self._rollout.done:
            steps.append(self._rollout.step())
        self._return += sum(step.reward for step in steps)
        for step in steps:
            for name, cost in costs_of(step.info).items():
                self._costs[name] = self._costs.get(name, 0.0) + float(cost)
        columns = [step_columns(self._policy.environment_spec, self._extras, step) for step in steps]
        named = {name: np.stack([each[name] for each in columns]) for name in columns[0]}
        facts = _stack(steps, self._rollout.spec) | {"columns": named}
        return facts | {"version": request["version"], "birth": self._birth, "begins": begins, "end": self._end()}

    def _end(self) -> StateDict | None:
        """Return the summary of the episode; None while it runs."""
        rollout = self._rollout
        if rollout is None or not rollout.done:
            return None
        self._rollout = None
        facts = {"length": len(rollout), "success": rollout.success, "stop_reason": rollout.stop_reason, "costs": self._costs}
        return {"episode_return": self._return, "terminated": rollout.terminated, **facts}

    @property
    def acting(self) -> Policy:
        """Policy that acts at present: one of random actions at the beginning of a training, later the trained one."""
        return self._random if self._acts_at_random else self._policy


class _Acting:
    """Policy that acts as the newest request of the collector says: at random or not."""

    def __init__(self, collector: SegmentCollector) -> None:
        self._collector = collector
        self.environment_spec = collector.acting.environment_spec

    def reset(self) -> None:
        self._collector.acting.reset()

    def replan(self) -> None:
        replan(self._collector.acting)

    def act(self, observation: Any, *, deterministic: bool = False) -> Any:
        return self._collector.acting.act(observation, deterministic=deterministic)


def _stack(steps: list[Transition], spec: EnvironmentSpec) -> StateDict:
    seen = [spec.observation.newest(each) for each in (steps[0].observation, *(step.next_observation for step in steps))]
    return {
        "observations": {name: np.stack([each[name] for each in seen]) for name in seen[0]},
        "actions": np.stack([step.action for step in steps]),
        "rewards": np.asarray([step.reward for step in steps], np.float64),
        "sources": np.asarray([step.source for step in steps], np.int8),
    }


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of one episode, as a collector sent them, with the version of the parameters that acted."""

    content: StateDict

    def __len__(self) -> int:
        return len(self.content["rewards"])

    @property
    def version(self) -> int:
        """Version of the parameters that acted: number of steps learned from when the learner published them."""
        return int(self.content["version"])

    @property
    def birth(self) -> int:
        """Number of the collector, unique in the training."""
        return int(self.content["birth"])

    @property
    def observation(self) -> Observation:
        """Observation before the first step."""
        return {name: values[0] for name, values in self.content["observations"].items()}

    @property
    def begins(self) -> bool:
        """True if the episode begins with this segment."""
        return bool(self.content["begins"])

    @property
    def end(self) -> StateDict | None:
        """Summary of the episode if it ends with this segment, else None.

        It holds return, length, success, costs, stop reason and termination.
        """
        end: StateDict | None = self.content["end"]
        return end

    def transitions(self) -> Iterator[Transition]:
        """Yield the steps as `Transition` objects, in order."""
        observations, actions = self.content["observations"], self.content["actions"]
        for step, reward in enumerate(self.content["rewards"]):
            end = self.end if step == len(self) - 1 else None
            yield Transition(
                observation={name: values[step] for name, values in observations.items()},
                action=actions[step],
                reward=float(reward),
                next_observation={name: values[step + 1] for name, values in observations.items()},
                terminated=end is not None and end["terminated"],
                truncated=end is not None and not end["terminated"],
                policy_action=actions[step],
                source=ActionSource(int(self.content["sources"][step])),
                info={} if end is None else {"stop_reason": end["stop_reason"]},
                columns={name: values[step] for name, values in self.content["columns"].items()},
            )
