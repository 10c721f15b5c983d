"""Callbacks of a training: objects of the user that receive its metrics and evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from robo_rl.code_names import object_named
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.runs.run import Run
from robo_rl.types import Metrics


class Callback:
    """Base class of callbacks of a training; override the methods that you need, the others do nothing.

    They are called in the thread of the training, between two steps. An error in a callback ends the training like any other
    error; `resume` continues from the newest checkpoint.
    """

    def on_start(self, run: Run, step: int) -> None:
        """Receive the start of the training, before the first step.

        step: 0, or the step of the checkpoint from which the run continues.
        """

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Receive the values of each new line of the log, every `log_every` steps and after each evaluation."""

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Receive each evaluation, during the training and at its end."""

    def on_end(self, run: Run, error: BaseException | None) -> None:
        """Receive the end of the training.

        error: None if the run was evaluated and reported, else what ended it, such as KeyboardInterrupt.
        """


class Callbacks:
    """Several callbacks in one object, called one after the other."""

    def __init__(self, callbacks: Sequence[Callback | str] = ()) -> None:
        """Collect callbacks: objects, or names of classes, "package.module:Class"; raises InvalidSetting, UnknownName."""
        given = [callbacks] if isinstance(callbacks, Callback | str) else [*callbacks]
        self._callbacks = [_made(each) for each in given]

    @contextmanager
    def hearing(self, run: Run, step: int) -> Iterator[None]:
        """Call `on_start` of all callbacks before the block and `on_end` after it, also if the block fails."""
        for each in self._callbacks:
            each.on_start(run, step)
        try:
            yield
        except BaseException as error:
            for each in self._callbacks:
                each.on_end(run, error)
            raise
        for each in self._callbacks:
            each.on_end(run, None)

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Pass a line of the log to each callback; each gets a copy."""
        for each in self._callbacks:
            each.on_metrics(step, dict(metrics))

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Pass an evaluation to each callback."""
        for each in self._callbacks:
            each.on_evaluation(step, evaluation)


def _made(given: object) -> Callback:
    """Return a callback; raises InvalidSetting if it is none, UnknownName if it has a method `on_...` that is never called."""
    found = object_named(given, "callback", allowed="package.module:Class") if isinstance(given, str) else given
    made = found() if isinstance(found, type) and issubclass(found, Callback) else found
    if not isinstance(made, Callback):
        fix = "class Mine(robo_rl.Callback): with on_metrics(self, step, metrics), then callbacks=[Mine()]"
        raise InvalidSetting("This is no callback.", got=repr(made)[:200], allowed="an object of robo_rl.Callback", fix=fix)
    known = [name for name in vars(Callback) if name.startswith("on_")]
    for name in dir(made):
        if name.startswith("on_") and name not in known:
            raise UnknownName(f"method of the callback {type(made).__name__}", name, known)
    return made
