"""Callbacks hear of a training's metrics, evaluations and end; the best policy is kept beside the newest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import robo_rl
from robo_cli.main import dispatch
from robo_rl.code_names import name_of_object
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.runs import observer
from robo_rl.runs.callbacks import Callbacks

RECIPE: dict[str, Any] = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 20}},
    "algorithm": "bc",
    "learner": {"network": {"hidden": [8]}, "batch_size": 4},
    "demonstrations": {"episodes": 2},
    "steps": 8,
    "log_every": 2,
    "checkpoint_every": 3,
    "evaluation": {"episodes": 1, "every": 2, "episodes_during": 1, "videos": 0},
}


class Heard(robo_rl.Callback):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def on_start(self, run: robo_rl.Run, step: int) -> None:
        self.calls.append(("start", step))

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        assert "time/fps" in metrics
        self.calls.append(("metrics", step))

    def on_evaluation(self, step: int, evaluation: robo_rl.Evaluation) -> None:
        assert len(evaluation) == 1
        self.calls.append(("evaluation", step))

    def on_end(self, run: robo_rl.Run, error: BaseException | None) -> None:
        assert (error is None) == run.report.exists()
        self.calls.append(("end", type(error).__name__))


@pytest.mark.slow
def test_callbacks_hear_a_training_to_its_end(tmp_path: Path) -> None:
    heard = Heard()
    run = robo_rl.train(RECIPE, out=tmp_path, callbacks=[heard, Heard()])
    steps = [2, 4, 6, 8]
    assert heard.calls[0] == ("start", 0) and heard.calls[-2:] == [("evaluation", 8), ("end", "NoneType")]
    assert [at for name, at in heard.calls if name == "metrics"] == steps
    assert [at for name, at in heard.calls if name == "evaluation"] == [*steps, 8]
    later = Heard()
    robo_rl.resume(run, steps=10, callbacks=[later])
    assert later.calls[:2] == [("start", 8), ("evaluation", 10)]


@pytest.mark.slow
def test_an_error_in_a_callback_ends_the_training_and_is_told(tmp_path: Path) -> None:
    class Broken(Heard):
        def on_evaluation(self, step: int, evaluation: robo_rl.Evaluation) -> None:
            raise RuntimeError("no space left at the service")

    broken = Broken()
    with pytest.raises(RuntimeError, match="no space left"):
        robo_rl.train(RECIPE, out=tmp_path, callbacks=[broken])
    assert broken.calls[-1] == ("end", "RuntimeError")
    assert robo_rl.resume(runs=tmp_path).evaluation is not None


def a_function(batch: Any) -> Any: ...


def test_resume_takes_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(robo_rl, "resume", lambda run, **settings: given.update(settings) or SimpleNamespace(description={}))
    assert dispatch(["resume", "latest", "--callbacks", "my.logs:First", "my.logs:Second"]) == 0
    assert given["callbacks"] == ("my.logs:First", "my.logs:Second")
    with pytest.raises(InvalidSetting, match="no callback"):
        Callbacks([name_of_object(a_function)])


def test_what_is_no_callback_is_refused(tmp_path: Path) -> None:
    class Misspelt(robo_rl.Callback):
        def on_metric(self, step: int, metrics: dict[str, float]) -> None: ...

    with pytest.raises(InvalidSetting, match=r"no callback(.|\n)*class Mine\(robo_rl\.Callback\)"):
        robo_rl.train(RECIPE, out=tmp_path, callbacks=[print])  # type: ignore[list-item]
    with pytest.raises(UnknownName, match="did you mean 'on_metrics'"):
        robo_rl.train(RECIPE, out=tmp_path, callbacks=[Misspelt()])
    assert not [*tmp_path.iterdir()]


def test_callbacks_of_a_command_are_classes_by_name(tmp_path: Path) -> None:
    Path("mine.py").write_text(
        "import robo_rl\n\n\nclass Log(robo_rl.Callback):\n"
        "    def on_end(self, run, error):\n        (run.path / 'mine.txt').write_text(str(error))\n"
    )
    words = "--callbacks mine:Log --steps 3 --evaluation.episodes 1 --evaluation.videos 0 --demonstrations.episodes 1"
    assert dispatch(["train", "arm-pick-bc", "--out", str(tmp_path), *words.split()]) == 0
    assert next(tmp_path.glob("*/mine.txt")).read_text() == "None"


@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Mean returns of the evaluations by step, as a training would have them."""
    found: dict[int, float] = {}
    original = observer.RunRecord._evaluation

    def evaluation(self: Any, step: int, training: Any) -> Any:
        judged = self._evaluate

        def scaled(policy: Any) -> robo_rl.Evaluation:
            import dataclasses

            return dataclasses.replace(judged(policy), returns=(found[step],), successes=(None,))

        with monkeypatch.context() as patched:
            patched.setattr(self, "_evaluate", scaled)
            return original(self, step, training)

    monkeypatch.setattr(observer.RunRecord, "_evaluation", evaluation)
    return found


@pytest.mark.slow
def test_the_best_policy_is_kept_beside_the_newest(tmp_path: Path, returns: dict[int, float], capsys: Any) -> None:
    returns |= {2: 1.0, 4: 3.0, 6: 2.0, 8: 3.0}
    run = robo_rl.train(RECIPE, out=tmp_path, progress=True)
    assert run.best == 4 and {4, 8} <= {*run.checkpoints}
    assert "best     step 4: mean return 3 in 1 episode during training" in capsys.readouterr().out
    assert "best in training: step 4" in run.report.read_text()
    kept = run.load("best").parts["learner"]
    assert run.load("best").step == 4 and kept.keys() == run.load().parts["learner"].keys()
    evaluation = run.evaluate(episodes=1, step="best")
    assert (run.path / "evaluations" / "step-4.json").exists() and len(evaluation) == 1
    with pytest.raises(InvalidSetting, match='a number, or "best"'):
        run.policy("bets")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_resumed_run_keeps_the_best_until_its_checkpoint(
    tmp_path: Path, returns: dict[int, float], interrupted_at: Any
) -> None:
    returns |= {2: 1.0, 4: 2.0, 6: 3.0, 8: 0.0}
    with interrupted_at(5):
        robo_rl.train(RECIPE, out=tmp_path)
    run = robo_rl.open_run(runs=tmp_path)
    assert run.best == 4
    run.rewind(3)  # as if the newest checkpoint were that of step 3
    assert run.best == 2
    assert robo_rl.resume(runs=tmp_path).best == 6


def test_without_evaluations_in_training_there_is_no_best(tmp_path: Path) -> None:
    run = robo_rl.train(RECIPE, evaluation={"every": 0}, out=tmp_path)
    with pytest.raises(InvalidSetting, match=r"no best policy(.|\n)*--evaluation.every STEPS"):
        run.policy("best")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [("sb3-sac", {"learning_starts": 2, "batch_size": 2}), ("ppo", {"num_envs": 1, "steps_per_env": 4, "batch_size": 4})],
)
def test_every_loop_restores_its_best_policy(tmp_path: Path, algorithm: str, settings: dict[str, Any]) -> None:
    bare = {key: value for key, value in RECIPE.items() if key != "demonstrations"}
    run = robo_rl.train(bare | {"algorithm": algorithm, "learner": settings}, out=tmp_path)
    assert run.best is not None and len(run.evaluate(episodes=1, step="best")) == 1
