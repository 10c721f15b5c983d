"""Observer that records a training while it runs: metrics, evaluations, checkpoints, progress display."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Protocol

import numpy as np

from robo_rl.errors import MissingExtra, RunError, fix_of, optional
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.protocols.components import Policy, SavesItself, Stateful, Training
from robo_rl.runs.best_policy import keep_if_best
from robo_rl.runs.callbacks import Callbacks
from robo_rl.runs.checkpoints import Checkpoint
from robo_rl.runs.newest_episode import NewestEpisode
from robo_rl.runs.run import Run, write_text
from robo_rl.types import DISCARDED, DIVERGED, Episode, Metrics, StateDict

RECENT = 100  # episodes in rollout/ep_rew_mean, as in Stable-Baselines3; of more environments, one of each
REPORT_PERIOD = 1.0  # [s] between two writes of status.json
KEEP_PERIOD = 5.0  # [s] between two training episodes that are kept in RUN/newest
SAVES_THAT_MAY_FAIL = 3  # a full disk may be emptied again; after that the run stops


@dataclass(frozen=True)
class Cadence:
    """How often a training logs, evaluates and saves, in environment steps (updates without an environment); 0 for never."""

    log: int
    evaluate: int
    checkpoint: int


class Display(Protocol):
    """Interface of what shows the progress of a training to a person."""

    def update(self, step: int, metrics: Metrics) -> None:
        """Show that the training reached `step`; `metrics` has the newest value of every tag."""

    def say(self, message: str) -> None:
        """Show a line of text that stays."""


class RunRecord:
    """Observer of a training that logs, evaluates and saves at set intervals.

    A line of the log holds only values that are new since the line before, so that each value stands at the step of its
    measurement. Means over recent episodes begin once every environment has ended an episode: the first episodes to end are
    short, and in many tasks these are the successful ones.
    """

    def __init__(
        self,
        run: Run,
        cadence: Cadence,
        evaluate: Callable[[Policy], Evaluation],
        display: Display,
        step: int = 0,
        *,
        callbacks: Callbacks | None = None,
        kept_parts: Callable[[Training], dict[str, StateDict]] | None = None,
    ) -> None:
        """Prepare the record of a run.

        Args:
            run: Run to write to, which must be open for writing.
            cadence: Intervals of logs, evaluations and checkpoints.
            evaluate: Evaluates a policy.
            display: Shows the progress.
            step: First step: 0, or that of the resumed checkpoint.
            callbacks: Callbacks of the user.
            kept_parts: Returns the parts of a training from which its policy is restored, to keep the best policy; None keeps
                none.
        """
        self._run, self._cadence, self._evaluate, self._display = run, cadence, evaluate, display
        self._callbacks, self._kept_parts = callbacks or Callbacks(), kept_parts
        self._board = None
        try:
            with optional("A log for TensorBoard", "tensorboard", "board"):
                from torch.utils.tensorboard import SummaryWriter  # seconds, which only a training has to spend
            self._board = SummaryWriter(str(run.path), purge_step=step + 1)  # hides events written after the checkpoint
        except MissingExtra as error:
            display.say(f"{error.problem} Do: {error.fix}")
        self._returns: deque[float] = deque()
        self._lengths: deque[float] = deque()
        self._successes: deque[float] = deque()
        self._terms: dict[str, deque[float]] = {}
        self._costs: dict[str, deque[float]] = {}
        self._heard_of: set[int] = set()
        """Environments that have ended an episode."""
        self._environments = 1
        self._episode: Episode | None = None
        """Ended in this step."""
        self._kept_at = float("-inf")
        self._newest: Metrics = {}
        self._unlogged: Metrics = {}
        self._stop_requested = False
        self._started = self._shown = self._logged_at = self._reported = time.monotonic()
        self._logged_step = self._step = step
        self._saved_step = step or None  # a resumed run starts from a saved step
        self._failed_saves = 0

    def load_state_dict(self, state: StateDict) -> None:
        """Continue the record of an interrupted training from its saved state."""
        self._started -= state["elapsed"]
        self._newest = dict(state["newest"])
        self._unlogged = dict(state["unlogged"])
        self._returns.extend(state["returns"])
        self._lengths.extend(state["lengths"])
        self._successes.extend(state["successes"])
        self._terms = {name: deque(values) for name, values in state["terms"].items()}
        self._costs = {name: deque(values) for name, values in state["costs"].items()}
        self._heard_of, self._environments = set(state["heard_of"]), int(state["environments"])

    def state_dict(self) -> StateDict:
        """Return the elapsed seconds, the newest metrics and the figures of recent episodes."""
        recent: StateDict = {"returns": list(self._returns), "lengths": list(self._lengths), "successes": list(self._successes)}
        recent |= {"terms": {name: list(values) for name, values in self._terms.items()}}
        recent |= {"costs": {name: list(values) for name, values in self._costs.items()}}
        recent |= {"heard_of": sorted(self._heard_of), "environments": self._environments}
        metrics = {"newest": self._newest, "unlogged": self._unlogged}
        return {"elapsed": self.elapsed, **metrics, **recent}

    @property
    def step(self) -> int:
        """Step that the training has reached."""
        return self._step

    @property
    def elapsed(self) -> float:
        """Seconds of training, including those before a resume."""
        return time.monotonic() - self._started

    def on_episode(
        self,
        step: int,
        *,
        episode_return: float,
        length: int,
        success: bool | None,
        stop_reason: str,
        episode: Episode | None = None,
        costs: Mapping[str, float] = MappingProxyType({}),
        place: tuple[int, int] = (0, 1),
    ) -> None:
        """Record an ended training episode; the arguments are those of `TrainingObserver.on_episode`."""
        self._heard_of.add(place[0])
        self._environments = place[1]
        self._remember(self._returns, episode_return)
        self._remember(self._lengths, length)
        if success is not None and stop_reason != DISCARDED:
            self._remember(self._successes, success)
        if episode is not None:
            self._episode = episode
            for name, values in episode.reward_terms.items():
                self._remember(self._terms.setdefault(name, deque()), float(np.sum(values)))
            costs = {name: float(np.sum(values)) for name, values in episode.costs.items()}
        for name, cost in costs.items():
            self._remember(self._costs.setdefault(name, deque()), cost)
        if stop_reason == DIVERGED:
            self._say(step, "the simulation diverged; the episode was cut")
        self._report(step)

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Record metrics of the learner for the next line of the log."""
        self._newest |= metrics
        self._unlogged |= metrics

    def evaluate(self, step: int, training: Training) -> None:
        """Evaluate the present policy, and log the result."""
        self.on_metrics(step, training.stopwatch.time("evaluation", partial(self._evaluation, step, training)))
        self._log(step, training)

    def request_stop(self) -> None:
        """Request that the training saves a checkpoint and stops after the present step."""
        self._stop_requested = True

    def on_step(self, step: int, training: Training) -> None:
        """Log, evaluate and save if due; show progress about ten times a second.

        Raises KeyboardInterrupt, after everything was saved, if a stop was requested.
        """
        cadence = self._cadence
        before, self._step = self._step, step
        if self._episode is not None:
            self._keep(self._episode, step, training)
            self._episode = None
        evaluates = _due(before, step, cadence.evaluate)
        if evaluates:
            self.on_metrics(step, training.stopwatch.time("evaluation", partial(self._evaluation, step, training)))
        if evaluates or _due(before, step, cadence.log):
            self._log(step, training)
        if _due(before, step, cadence.checkpoint):
            self.save(step, training)
        if time.monotonic() - self._shown > 0.1:
            self._shown = time.monotonic()
            self._display.update(step, self._newest | self._recent_metrics())
            if not getattr(training, "is_in_real_time", False):  # a robot waits for no disk within an episode
                self._report(step)
        if self._stop_requested:
            if self._saved_step != step:
                self.save(step, training)
            raise KeyboardInterrupt

    def finish(self, step: int, training: Training) -> None:
        """Write the last line of the log and the last checkpoint, unless they were already written at this step."""
        training.stopwatch.time("log", partial(self._finish, step, training))

    def _finish(self, step: int, training: Training) -> None:
        if self._logged_step != step:
            self._log(step, training)
        if self._saved_step != step:
            self.save(step, training)
        self._display.update(step, self._newest)

    def close(self) -> None:
        """Write what TensorBoard's writer still holds, and end its thread."""
        if self._board is not None:
            self._board.close()

    def save(self, step: int, training: Training) -> None:
        """Save a checkpoint; a full disk gives a warning twice, and raises RunError the third time."""
        training.stopwatch.time("checkpoint", partial(self._save, step, training))

    def _save(self, step: int, training: Training) -> None:
        try:
            parts = training.state_dict() | {"record": self.state_dict()}
            if isinstance(training, SavesItself):
                training.save(step, parts)
            else:
                self._run.save(Checkpoint(step, parts))
            self._failed_saves, self._saved_step = 0, step
        except OSError as error:
            self._failed_saves += 1
            self._say(step, f"checkpoint not saved ({error}); the one before is kept")
            if self._failed_saves >= SAVES_THAT_MAY_FAIL:
                raise RunError(
                    f"{self._failed_saves} checkpoints in a row could not be saved.",
                    got=error,
                    fix=f"{fix_of(error)}, then go on with: robo-rl resume {self._run.path}",
                ) from error

    def _keep(self, episode: Episode, step: int, training: Training) -> None:
        """Store an episode for `robo-rl watch`, unless one was stored a few seconds ago."""
        if time.monotonic() - self._kept_at > KEEP_PERIOD:
            self._kept_at = time.monotonic()
            replays = bool(getattr(training, "replays", True))
            NewestEpisode.of(episode, kind="training", step=step, replays=replays).write(self._run.path)

    def _say(self, step: int, message: str) -> None:
        self._display.say(f"step {step}: {message}")
        self._run.note(step, message)

    def _report(self, step: int, activity: str = "training", *, at_once: bool = False) -> None:
        if at_once or time.monotonic() - self._reported > REPORT_PERIOD:
            self._reported = time.monotonic()
            self._run.announce(step, activity)

    def _evaluation(self, step: int, training: Training) -> Metrics:
        self._report(step, "evaluation", at_once=True)
        policy = training.policy
        state = policy.state_dict() if isinstance(policy, Stateful) else None
        evaluation = self._evaluate(policy)
        if state is not None and isinstance(policy, Stateful):
            policy.load_state_dict(state)  # the running training episode is not affected by the evaluation
        folder = self._run.path / "evaluations"
        folder.mkdir(exist_ok=True)
        write_text(folder / f"{step:010d}.json", json.dumps(evaluation.to_json()))
        if self._kept_parts is not None:
            self._keep_best(step, evaluation, partial(self._kept_parts, training))
        self._callbacks.on_evaluation(step, evaluation)
        self._report(step, at_once=True)
        return evaluation.metrics

    def _keep_best(self, step: int, evaluation: Evaluation, parts: Callable[[], dict[str, StateDict]]) -> None:
        try:
            keep_if_best(self._run.path, step, evaluation, parts)
        except OSError as error:
            self._say(step, f"the best policy was not kept ({error})")

    def _remember(self, recent: deque[float], value: float) -> None:
        recent.append(value)
        while len(recent) > max(RECENT, self._environments):
            recent.popleft()

    def _recent_metrics(self) -> Metrics:
        if len(self._heard_of) < self._environments:
            return {}
        recent: dict[str, Collection[float]] = {
            "rollout/ep_rew_mean": self._returns,
            "rollout/ep_len_mean": self._lengths,
            "rollout/success_rate": self._successes,
        }
        recent |= {f"terms/{name}": values for name, values in self._terms.items()}
        recent |= {f"costs/{name}": values for name, values in self._costs.items()}
        return {tag: float(np.mean(list(values))) for tag, values in recent.items() if values}

    def _log(self, step: int, training: Training) -> None:
        now = time.monotonic()
        speed = {"time/fps": (step - self._logged_step) / max(now - self._logged_at, 1e-9)}
        line = self._unlogged | self._recent_metrics() | training.stopwatch.metrics | speed
        self._logged_step, self._logged_at, self._unlogged = step, now, {}
        self._newest |= line
        self._run.log(step, line, elapsed=self.elapsed)
        self._callbacks.on_metrics(step, line)
        if self._board is not None:
            for tag, value in line.items():
                self._board.add_scalar(tag, value, step)


def _due(before: int, step: int, every: int) -> bool:
    """Return True if a multiple of `every` was reached since step `before`; several environments take several steps at once."""
    return every > 0 and step // every > before // every
