"""What errors and messages advise can be done, and names what is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_app.experiments.seeds import seeds_of
from robo_app.jobs.jobs import Crew, Job
from robo_app.sweeps.stopping import Stopping
from robo_cli.main import dispatch
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting, UnknownName


def test_an_unknown_policy_is_no_unknown_run() -> None:
    with pytest.raises(
        UnknownName, match=r"Unknown policy 'scriptd'(.|\n)*mix:NAME=SHARE(.|\n)*did you mean 'scripted'"
    ) as told:
        dispatch(["record", "robo/ArmReach-v0", "--episodes", "1", "--out", "d", "--policy", "scriptd"])
    assert "random" in str(told.value) and "runs are looked for in" in str(told.value)
    assert not Path("d").exists()


def test_names_that_are_hardly_alike_are_not_suggested() -> None:
    with pytest.raises(UnknownName) as told:
        make_environment("gymnasium/HalfCheetah-v5", max_steps=100)
    assert "did you mean" not in str(told.value) and "image_size" in str(told.value)
    with pytest.raises(UnknownName) as told:
        load("formats", "orbit")
    assert "did you mean" not in str(told.value) and "d4rl" in str(told.value)


def test_arguments_of_the_family_are_among_the_allowed_ones() -> None:
    for make in (make_environment, lambda name, **more: make_vector_environment(name, 2, **more)):
        with pytest.raises(UnknownName, match=r"allowed: (.|\n)*relative_frame"):
            make("robo/ArmPick-v0", colour="red")


def test_a_dry_run_refuses_what_the_run_would() -> None:
    with pytest.raises(UnknownName, match="argument of gymnasium/HalfCheetah-v5 'max_steps'"):
        dispatch(["train", "halfcheetah-sac", "--environment.arguments.max_steps", "100", "--dry-run"])
    with pytest.raises(UnknownName, match="Unknown environment 'robo/ArmPik-v0'"):
        dispatch(["train", "halfcheetah-sac", "--environment.name", "robo/ArmPik-v0", "--dry-run"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3-1", r"the range 3-1 goes downwards(.|\n)*do: +--seeds 1-3"),
        ("a", r"'a' is not a seed or a range of seeds(.|\n)*got: +'a'"),
        ("0-3,2", r"the seed 2 is named twice"),
        ("0-100000", r"0-100000 is too many(.|\n)*1000 at most"),
    ],
)
def test_wrong_seeds_are_told_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        seeds_of(text)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"steps": 300, "every": 300},
            "no evaluation comes between step 75 (--grace) and the last one, 300, with evaluation.every 300",
        ),
        ({"every": 0}, "evaluation.every is 0"),
        ({"seeds": 1}, "a trial needs 2 seeds or more"),
        ({"risk": 0.0}, "--risk is 0"),
        ({}, ""),
    ],
)
def test_a_sweep_says_why_no_trial_is_stopped(changes: dict[str, float], why: str) -> None:
    rule = {"risk": 0.05, "trials": 3, "seeds": 2, "steps": 1000, "every": 300, "grace": 0.25}
    assert Stopping(**(rule | changes)).why_never == why  # type: ignore[arg-type]


class Finishing:
    """A job whose result is there, and whose process ends a moment later."""

    def __init__(self, job: Job, *_: object) -> None:
        self.job, self.left, self.was_stopped = job, 3, False

    def status(self) -> int | None:
        self.left -= 1
        return None if self.left > 0 else 0

    def stop(self) -> None:
        self.was_stopped = True

    def wait(self) -> None: ...


@pytest.mark.parametrize("fails", [False, True])
def test_jobs_are_stopped_after_an_error_only(fails: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun: list[Finishing] = []

    def begin(job: Job, *more: object) -> Finishing:
        begun.append(Finishing(job, *more))
        return begun[0]

    try:
        with Crew("sweep", 1, tmp_path, 1, begin) as crew:
            crew.begin(Job("one", []))
            if fails:
                raise RuntimeError
    except RuntimeError:
        pass
    page = capsys.readouterr().out
    assert begun[0].was_stopped == fails
    assert ("stopping 1 job; trainings are saved first" in page) == fails and "1 jobs" not in page
