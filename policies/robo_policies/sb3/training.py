"""Stable-Baselines3's own training loop in the form of a robo_rl `Training`, which reports to an observer."""

from __future__ import annotations

from numbers import Real
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit

from robo_policies.sb3.environment import ENDED, SB3Policy
from robo_policies.sb3.state import GlobalRandom, load_model_state, model_state
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import TrainingObserver
from robo_rl.protocols.rewards import DelayedRewards
from robo_rl.stopwatch import OTHER
from robo_rl.training.episode_reports import Progress
from robo_rl.types import StateDict

OBSERVED = {"rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/success_rate"}
"""Tags of SB3's log that robo_rl replaces by its own: SB3's means favour short episodes, which end first."""


class SB3Training(Progress):
    """Training loop of an SB3 model in its environments, by SB3's own `learn`.

    Resuming is warm: networks, optimisers, replay, normalisation, counters and random generators are restored, but every
    environment starts a new episode, and an on-policy learner a new rollout. Transitions of `step` are stored and their updates
    done. The stopwatch separates "collect" (simulation, acting and storing), "update" and the time of the observer.
    """

    def __init__(self, model: BaseAlgorithm, policy: SB3Policy, *, steps: int, rewards: DelayedRewards | None = None) -> None:
        super().__init__(steps=steps)
        self.rewards = rewards
        """Rewards of a model, or None for the environment's. Steps that wait for their rewards are lost in a resume."""
        self._model = model
        self._policy = policy
        # SB3 draws from the process-wide generators; kept here, so that nothing drawn between building and running counts.
        self._random = GlobalRandom.current()
        self._is_running = False

    @property
    def policy(self) -> SB3Policy:
        """The policy being trained."""
        return self._policy

    @property
    def updates(self) -> int:
        """Gradient steps of the model so far."""
        return int(self._model._n_updates)

    @property
    def model(self) -> BaseAlgorithm:
        """The SB3 model itself, to use functions of SB3 that robo_rl does not offer."""
        return self._model

    def run(self, observer: TrainingObserver) -> None:
        """Train as many whole rollouts as fit into the steps.

        Differs from SB3, which continues to the end of the rollout that contains the last step: a budget is not exceeded. If
        updates come after whole episodes the last one is cut, and not learnt from.
        """
        size = rollout_size(self._model)
        remaining = (self.steps - self.step) // size * size
        if remaining <= 0:
            return
        self._model.set_logger(Logger(None, [_MetricsWriter(observer)]))
        self._random.restore()
        self._is_running = True
        self.stopwatch.start()
        try:
            cut_at = self.steps if updates_after_episodes(self._model) else None
            self._model.learn(remaining, callback=_Reporter(observer, self, cut_at), reset_num_timesteps=self.step == 0)
        finally:
            self.stopwatch.switch(OTHER)
            self._is_running = False
            self._random = GlobalRandom.current()

    def state_dict(self) -> StateDict:
        """Return the whole state as tensors, arrays and JSON values, without pickles."""
        current = GlobalRandom.current() if self._is_running else self._random
        training = self.counters() | {"random": current.state_dict()}
        state = {"model": model_state(self._model), "training": training}
        return state if self.rewards is None else state | {"rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state; the next `run` continues from its step with fresh episodes."""
        model, training = self._model, state["training"]
        load_model_state(model, state["model"])
        self._random = GlobalRandom.from_state_dict(training["random"])
        self.load_counters(training)
        model.num_timesteps = self.step
        if self.rewards is not None:  # learnt rewards are restored, waiting steps are not
            self.rewards.load_state_dict(state["rewards"])
            self.rewards.restart()
        model._last_obs = None  # makes `learn` reset the environments
        assert model.env is not None
        model.env.seed((model.seed or 0) + self.step)  # else the episodes of the beginning would come again


def rollout_size(model: BaseAlgorithm) -> int:
    """Return the number of steps, over all environments, between two updates of an SB3 model.

    1 if it updates after episodes.
    """
    if isinstance(model, OnPolicyAlgorithm):
        return model.n_steps * model.n_envs
    frequency = getattr(model, "train_freq", None)  # SB3 reads the setting when the model is made
    if isinstance(frequency, TrainFreq) and frequency.unit is TrainFrequencyUnit.STEP:
        return frequency.frequency * model.n_envs
    return 1


def updates_after_episodes(model: BaseAlgorithm) -> bool:
    """Return True if a model learns after whole episodes (`train_freq` in episodes)."""
    frequency = getattr(model, "train_freq", None)
    return isinstance(frequency, TrainFreq) and frequency.unit is TrainFrequencyUnit.EPISODE


def require_rollout(model: BaseAlgorithm, steps: int) -> None:
    """Raise InvalidSetting if a training of `steps` steps is shorter than one rollout of an SB3 model."""
    size = rollout_size(model)
    if 0 < steps < size:
        raise InvalidSetting(
            f"The training is shorter than one rollout of {type(model).__name__}.",
            got=f"{steps} steps",
            allowed=f"{size} or more",
            fix="more --steps, or a shorter rollout: --learner.n-steps, --learner.n-envs (on-policy), --learner.train-freq",
        )


class _MetricsWriter(KVWriter):
    """Passes the values of SB3's logger to the observer, with SB3's tags, except the means over episodes."""

    def __init__(self, observer: TrainingObserver) -> None:
        self._observer = observer

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Pass the numbers of one dump of the logger to the observer."""
        numbers = {key: float(value) for key, value in key_values.items() if isinstance(value, Real) and key not in OBSERVED}
        self._observer.on_metrics(step, numbers)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class _Reporter(BaseCallback):
    """Reports a step once it is complete.

    SB3 calls back before it stores a transition, and updates after the rollout; so step N is reported when the next
    hook is reached: the next step, the next rollout (after the updates), or the end.
    """

    def __init__(self, observer: TrainingObserver, training: SB3Training, cut_at: int | None) -> None:
        """Make the callback; `cut_at` is the last step that is taken, even within an episode, None for no such limit."""
        super().__init__()
        self._observer = observer
        self._training = training
        self._cut_at = cut_at
        self._pending: int | None = None
        self._switch = training.stopwatch.switch

    def _on_step(self) -> bool:
        self._switch("log")
        self._report()
        self._pending = self.num_timesteps
        dones, infos = self.locals["dones"], self.locals["infos"]
        for done, info in zip(dones, infos, strict=True):
            if done:
                self._training.reports.report_ended(self._observer, self.num_timesteps, info[ENDED], len(dones))
        self._switch("collect")
        return self._cut_at is None or self.num_timesteps < self._cut_at

    def _on_rollout_start(self) -> None:
        self._switch("log")
        self._report()
        self._switch("collect")

    def _on_rollout_end(self) -> None:
        self._switch("update")

    def _on_training_end(self) -> None:
        self._switch("log")
        self._report()

    def _report(self) -> None:
        if self._pending is not None:
            first, self._training.step, self._pending = self._training.step + 1, self._pending, None
            if self._training.rewards is not None:
                self._observer.on_metrics(self._training.step, self._training.rewards.metrics)
            for step in range(first, self._training.step + 1):  # several environments complete several steps at once
                self._observer.on_step(step, self._training)
