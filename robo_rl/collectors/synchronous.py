"""On-policy training with synchronous collectors: every rollout is collected with the newest parameters.

A collector keeps its parameters, those of the last update, for a whole rollout. Observations are normalised by the moments of
the rollouts before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from typing_extensions import override

from robo_rl.collectors.collector_pool import CollectorPool
from robo_rl.collectors.rollouts import CollectedLearner
from robo_rl.protocols.components import Policy, Stateful, TrainingObserver
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.collected_rollout import CollectedRollout
from robo_rl.training.on_policy import OnPolicyConfig
from robo_rl.training.vector_steps import require_steps
from robo_rl.types import Metrics, StateDict

TICK = 0.5  # [s] between two checks for collectors that hang


class SynchronousTraining(Stateful):
    """On-policy training loop over any number of collector processes, for at most `steps` environment steps.

    A lost collector is replaced; its environments begin new episodes, and its part of the rollout is collected again.
    """

    def __init__(self, learner: CollectedLearner, pool: CollectorPool, config: OnPolicyConfig, *, steps: int) -> None:
        require_steps(steps, config.num_envs)
        self.learner, self.pool, self.steps = learner, pool, steps
        self._rollout_steps, self._environments = config.steps_per_env, config.num_envs
        self.stopwatch = Stopwatch()
        self.step = 0
        """Environment steps, over all environments."""
        self.resumed: str | None = None
        """"exact" or "warm" after `load_state_dict`."""
        self._restored: dict[int, StateDict] = {}  # place -> state of its environments to be restored

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last step; the last rollout has the remaining steps."""
        time = self.stopwatch.time
        self.stopwatch.start()
        while (length := min(self._rollout_steps, (self.steps - self.step) // self._environments)) > 0:
            parts = time("simulate", partial(self._collect, length))
            self._report_episodes(parts, observer)
            self.step += length * self._environments
            time("infer", partial(self.learner.add_rollout, CollectedRollout.of(parts)))
            metrics = time("update", self.learner.update)
            time("log", partial(observer.on_metrics, self.step, metrics | self._account))
            time("log", partial(observer.on_step, self.step, self))

    @property
    def _account(self) -> Metrics:
        return {"collect/collectors": float(self.pool.count), "collect/lost": float(self.pool.losses), "collect/staleness": 0.0}

    def _collect(self, length: int) -> list[StateDict]:
        """Return the parts of a rollout of `length` steps, in the order of the environments."""
        self.pool.publish(self.step, self.learner.policy.parameters())
        self._restore()
        wanted = {"do": "rollout", "step": self.step, "steps": length}
        return [part for _, part in sorted(self._request_all(wanted).items())]

    def _restore(self) -> None:
        """Restore the environments from a checkpoint; those of a collector that is lost meanwhile begin new episodes."""
        for index, state in self._restored.items():
            self.pool.ask(index, {"do": "restore", "state": state})
        self._answers(set(self._restored), None)
        self._restored = {}

    def _request_all(self, request: StateDict) -> dict[int, Any]:
        """Return the answers of all collectors to a request; the replacement of a lost collector gets it again."""
        for index in range(self.pool.count):
            self.pool.ask(index, request)
        return self._answers(set(range(self.pool.count)), request)

    def _answers(self, places: set[int], again: StateDict | None) -> dict[int, StateDict | None]:
        """Return the answers of the collectors in `places`.

        again: request for the replacement of a lost collector; None to return None as its answer.
        """
        found: dict[int, StateDict | None] = {}
        while places - set(found):
            reply = self.pool.next(TICK)
            if reply is None:
                continue
            if reply.content is None and again is not None and reply.place not in found:
                self.pool.ask(reply.place, again)
            elif reply.content is not None or again is None:
                found[reply.place] = reply.content
        return found

    def _report_episodes(self, parts: list[StateDict], observer: TrainingObserver) -> None:
        before = 0
        for part in parts:
            for episode in part["episodes"]:
                facts = {**episode, "place": (before + episode["place"][0], self._environments)}
                observer.on_episode(self.step + (facts.pop("step") + 1) * self._environments, **facts)
            before += part["rewards"].shape[1]

    @override
    def state_dict(self) -> StateDict:
        states = self._restored or {
            index: answer["state"] for index, answer in self._request_all({"do": "save"}).items() if answer["state"] is not None
        }
        training = {"step": self.step, "seconds": self.stopwatch.state_dict()}
        return {
            "learner": self.learner.state_dict(),
            "training": training,
            "environments": {str(index): state for index, state in states.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a training; `resumed` is "exact" if its environments continue their episodes."""
        training, environments = state["training"], state["environments"]
        self.learner.load_state_dict(state["learner"])
        self.step = int(training["step"])
        self.stopwatch.load_state_dict(training["seconds"])
        is_whole = len(environments) == self.pool.count
        self._restored = {int(index): each for index, each in environments.items()} if is_whole else {}
        self.resumed = "exact" if is_whole else "warm"
