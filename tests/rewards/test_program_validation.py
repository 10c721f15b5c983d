"""Probation finds programs that mix rows, say nothing, saturate, or pay for failure; each finding in words."""

import re
import sys

import numpy as np
import pytest

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.process import Process
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox
from robo_rl.rewards.programs.validation import Clips, validate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="system calls are filtered on Linux only")
ROWS = 200
GENERATOR = np.random.default_rng(0)
COLUMNS = {"x": GENERATOR.normal(size=ROWS), "action": GENERATOR.normal(size=(ROWS, 4))}
CLIPS = Clips(np.repeat(np.arange(20), 10), np.arange(20) % 2 == 0)


def tried(expression: str, terms: str = "{}", **kwargs):
    text = f'def reward(batch):\n    x, action = batch["x"], batch["action"]\n    return {expression}, {terms}'
    return validate(RewardProgram.parse(text), kwargs.pop("columns", COLUMNS), **kwargs)


def failed(verdict) -> set[str]:
    assert not verdict.passed
    return {finding.check for finding in verdict.findings if finding.kind == "failure"}


@pytest.mark.slow
def test_an_honest_program_passes_and_its_scale_is_told():
    verdict = tried("x - 0.01 * np.sum(action ** 2, axis=1)", '{"x": x}')
    assert verdict.passed and verdict.feedback == ""
    assert {"order", "batch", "determinism", "inputs", "duration", "scale"} == {finding.check for finding in verdict.findings}
    assert "The term 'x' is " in str(verdict) and "to the bit, also in another process" in str(verdict)
    assert verdict.rewards is not None and verdict.rewards.valid.all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "checks"),
    [
        ("x - np.mean(x)", {"batch"}),
        ("np.cumsum(x)", {"order", "batch"}),
        ("np.concatenate([x[:1], np.diff(x)])", {"order", "batch"}),
        ("0.0 * x", {"sensitivity"}),
        ("x / 0.0", {"not finite"}),
        ("1e7 * x", {"scale"}),
        ("np.mean(x)", {"shape"}),
        ("x @ action", {"shape"}),
    ],
)
def test_a_bad_program_fails_the_check_that_is_for_it(expression, checks):
    verdict = tried(expression)
    assert failed(verdict) == checks and verdict.feedback


@pytest.mark.slow
def test_program_waiting_for_one_row_count_is_found():
    """Any up to 1,024, and larger ones where it is known that they will be asked for, also in pieces."""
    assert failed(tried("np.where(len(x) == 777, -x, x)")) == {"batch"}
    for waiting in ("len(x) == 6400", "len(x) == 50000 - 3 * 16384"):
        assert failed(tried(f"np.where({waiting}, -x, x)", sizes=(6400, 50_000))) == {"batch"}


@pytest.mark.slow
def test_notes_name_weak_terms_but_accept_program():
    verdict = tried("x", '{"constant": 0.0 * x, "switch": np.where(x > 2.0, 1.0, 0.0), "small": 1e-6 * x, "x": x}')
    assert verdict.passed
    assert "The term 'constant' is 0 on all 200 rows" in verdict.feedback
    assert "The term 'switch' is at its bound on" in verdict.feedback
    assert (
        "times as much as The term 'small'" in verdict.feedback or "The term 'small', which hardly counts" in verdict.feedback
    )


@pytest.mark.slow
def test_success_must_earn_more_than_failure():
    good = np.where(CLIPS.success[CLIPS.clip], 1.0, -1.0) + 0.1 * COLUMNS["x"]
    verdict = tried("x", columns=COLUMNS | {"x": good}, clips=CLIPS)
    assert verdict.passed and "success earns more in 100% of all pairs" in str(verdict)
    assert failed(tried("-x", columns=COLUMNS | {"x": good}, clips=CLIPS)) == {"ranking"}
    alone = tried("x", clips=Clips(CLIPS.clip, np.ones(20, bool)))
    assert alone.passed and "There are not both successful and failed clips" in alone.feedback


@pytest.mark.slow
def test_a_program_that_remembers_is_found_out(monkeypatch):
    """No program can, so one that the grammar never saw has to."""
    code = "seen = []\ndef reward(batch):\n    seen.append(0)\n    return batch['x'] + len(seen), ()"
    settings = Sandbox._settings
    monkeypatch.setattr(Sandbox, "_settings", lambda self, layout: settings(self, layout) | {"is_free": True})
    verdict = validate(RewardProgram(source=code, code=code, terms=(), columns=("x",)), COLUMNS)
    assert failed(verdict) == {"order", "batch", "determinism"}


def test_a_slow_program_fails_with_its_time():
    verdict = tried("x + np.einsum('a,b,c->a', x, x, x) / 1e9", limits=Limits(seconds=0.01))
    assert failed(verdict) <= {"duration", "timeout", "batch"}


def test_wrong_calls_are_refused():
    with pytest.raises(InvalidSetting, match="cannot be tried on these rows"):
        tried("x", columns={"x": np.ones(1), "action": np.ones((1, 4))})
    with pytest.raises(InvalidSetting, match="number of a clip is out of range"):
        Clips(np.array([0, 3]), np.array([True, False]))
    unknown = tried("x", columns={"x": np.ones(3)})
    assert failed(unknown) == {"unknown column"}


@pytest.mark.slow
def test_batches_just_below_their_limit_do_not_add_up(monkeypatch):
    """Each of a thousand batches, of one row too, takes as long as a third of what one may take."""
    computed = Process.computed

    def slow(process, columns, rows):
        found = computed(process, columns, rows)
        process.seconds = 0.6  # as measured, without waiting for it
        return found

    monkeypatch.setattr(Process, "computed", slow)
    verdict = tried("x - 0.01 * np.sum(action ** 2, axis=1)")
    assert failed(verdict) == {"timeout"}
    assert re.search(r"20\.4 s for 34 batches, most of them small.*20 s.*compute less", verdict.feedback)
