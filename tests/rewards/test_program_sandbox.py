"""A program in the sandbox computes what it computes outside; what is no reward is refused in words."""

import os
import signal
import sys
import threading

import numpy as np
import pytest

from robo_rl.errors import InvalidProgram, InvalidSetting, ProgramFailed, SandboxUnavailable
from robo_rl.rewards.programs import sandbox as sandbox_module
from robo_rl.rewards.programs import system_calls
from robo_rl.rewards.programs.output_checks import Limits, OutputChecks
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox
from robo_rl.rewards.programs.shared_memory import ColumnLayout, Layout

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="system calls are filtered on Linux only")
PROGRAM = RewardProgram.parse(
    """
def reward(batch):
    distance = np.linalg.norm(batch["tool"] - batch["cube"], axis=1)
    held = np.where(batch["touches"], 1.0, 0.0)
    return held - distance, {"held": held, "distance": -distance}
"""
)


def columns(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "tool": generator.normal(size=(rows, 3)).astype(np.float32),
        "cube": generator.normal(size=(rows, 3)).astype(np.float32),
        "touches": generator.random(rows) < 0.5,
        "unused": np.full(rows, "text"),
    }


def program(expression: str, terms: str = "{}") -> RewardProgram:
    return RewardProgram.parse(f'def reward(batch):\n    x = batch["x"]\n    return {expression}, {terms}')


def failure(expression: str, x: np.ndarray, terms: str = "{}", **limits: object) -> ProgramFailed:
    with Sandbox(program(expression, terms), Limits(**limits)) as sandbox, pytest.raises(ProgramFailed) as failed:
        sandbox.run({"x": x})
    return failed.value


def test_batches_of_any_kind_equal_numpy():
    with Sandbox(PROGRAM, Limits(rows=100)) as sandbox:
        assert sandbox.guards == ()
        for rows in (1, 2, 256, 7, 0, 250, 100):  # of 100 at most at once
            batch = columns(rows, rows)
            batch["cube"] = batch["cube"][::-1]  # not contiguous
            rewards = sandbox.run(batch)
            distance = np.linalg.norm(batch["tool"].astype(float) - batch["cube"], axis=1)
            np.testing.assert_allclose(rewards.total, batch["touches"] - distance, rtol=1e-5, atol=1e-6)
            assert dict(rewards.terms).keys() == {"held", "distance"} and rewards.valid.all()
            np.testing.assert_allclose(rewards.terms["distance"], -distance, rtol=1e-5, atol=1e-6)
        assert sandbox.output_checks.rows == 616
        assert {"limits", "no new rights", "seccomp"} <= set(sandbox.guards)
        later = {name: value.astype(np.float64) for name, value in columns(5).items() if name != "unused"}
        assert len(sandbox.run(later).total) == 5  # other types: another process


def test_warnings_of_python_and_numpy_are_no_errors():
    with Sandbox(program("x + np.mean(x[:0]) + np.log(x - x)")) as sandbox:
        assert not sandbox.run({"x": np.ones(1)}).valid.any()  # the mean of nothing warns


def test_results_are_copies_and_arguments_stay():
    batch = columns(3)
    before = {name: value.tobytes() for name, value in batch.items()}
    with Sandbox(PROGRAM) as sandbox:
        sandbox.run(batch)
        first = sandbox.run(batch)
        kept = first.total.copy()
        sandbox.run(columns(3, 1))
        assert first.total.tolist() == kept.tolist()
    assert {name: value.tobytes() for name, value in batch.items()} == before


@pytest.mark.slow
def test_ended_or_timed_out_process_is_replaced():
    with Sandbox(PROGRAM) as sandbox:
        first = sandbox.run(columns(4)).total
        os.kill(sandbox._process.process.pid, signal.SIGKILL)
        sandbox._process.process.wait()
        assert sandbox.run(columns(4)).total.tolist() == first.tolist()
        old = sandbox._process
        old.seconds_left = 0.0
        assert sandbox.run(columns(4)).total.tolist() == first.tolist()
        assert sandbox._process is not old and old.process.status is not None


def test_the_process_outlives_the_thread_that_first_asked():
    with Sandbox(program("2.0 * x")) as sandbox:
        thread = threading.Thread(target=sandbox.run, args=({"x": np.ones(3)},))
        thread.start()
        thread.join()
        first = sandbox._process
        assert sandbox.run({"x": np.ones(3)}).total.tolist() == [2.0, 2.0, 2.0]
        assert sandbox._process is first


def test_threads_take_turns():
    wrong = []
    with Sandbox(program("2.0 * x")) as sandbox:

        def asks(number: float) -> None:
            for _ in range(20):
                if (sandbox.run({"x": np.full(3, number)}).total != 2 * number).any():
                    wrong.append(number)

        threads = [threading.Thread(target=asks, args=(number,)) for number in (1.0, 2.0, 3.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.slow
def test_errors_of_a_program_name_its_line_and_what_to_do():
    raised = failure("np.stack([x, x[:1]])", np.ones(3))
    assert raised.status == "raised"
    assert "in line 3, `return np.stack([x, x[:1]]), {}`" in str(raised) and "ValueError: all input arrays" in str(raised)
    assert "use np.where, & and |" in str(failure("max(x, 0.0)", np.ones(3)))
    assert "IndexError" in str(failure("x[:, 9]", np.ones((3, 2))))
    shape = failure("np.mean(x)", np.ones(3))
    assert shape.status == "shape" and "the total has shape ()" in str(shape) and "allowed: (3,)" in str(shape)
    assert "the term 'a' has shape (3, 2)" in str(failure("x[:, 0]", np.ones((3, 2)), '{"a": x}'))


def test_endless_or_greedy_program_is_stopped():
    endless = RewardProgram.parse(
        "def reward(batch):\n    n = 9\n    for i in range(64):\n        n = n * n\n    return batch['x'] * n, {}"
    )
    with Sandbox(endless, Limits(seconds=0.3)) as sandbox, pytest.raises(ProgramFailed) as failed:
        sandbox.run({"x": np.ones(3)})
    assert failed.value.status in {"timeout", "memory"}
    greedy = failure("np.sum(x[:, None] * x[None, :], axis=1)", np.ones(10_000), memory=2**28)
    assert greedy.status == "memory" and "allowed: 256 MiB" in str(greedy)


def test_what_is_not_finite_is_missing_and_too_much_of_it_fails():
    x = np.ones(1_000)
    x[7] = 0.0
    with Sandbox(program("1.0 / x", '{"a": 1.0 / x}')) as sandbox:
        rewards = sandbox.run({"x": x})
        assert rewards.valid.sum() == 999 and not rewards.valid[7] and np.isnan(rewards.total[7])
        with pytest.raises(ProgramFailed) as failed:
            sandbox.run({"x": np.zeros(1_000)})
    assert failed.value.status == "not finite" and "1001 of 2000 rows" in str(failed.value)
    assert "divide by x + 1e-6" in str(failed.value)
    assert failure("np.log(x)", -np.ones(3)).status == "not finite"


def test_late_and_early_failures_are_noticed_alike():
    checks, good, bad = OutputChecks((), Limits()), np.ones((1, 10_000)), np.full((1, 10), np.nan)
    for _ in range(200):  # 2,000,000 rows, of which 2,000 might be bad if all counted
        checks.accept(good.copy())
    noticed = 0
    with pytest.raises(ProgramFailed, match="not finite"):
        while noticed < 2_000:
            noticed += 10
            checks.accept(bad.copy())
    assert 50 <= noticed <= 110


def test_sparse_bad_rows_never_fail():
    checks, most = OutputChecks((), Limits()), np.ones((1, 10_000))
    most[0, :5] = np.nan  # half of what may be
    for _ in range(200):
        assert np.count_nonzero(~checks.accept(most.copy()).valid) == 5
    assert checks.rows <= 110_000


def test_a_term_that_is_not_finite_makes_its_row_missing():
    checks = OutputChecks(("a",), Limits())
    rewards = checks.accept(np.array([[1.0, 2.0], [np.inf, 3.0]]))
    assert rewards.valid.tolist() == [False, True] and np.isnan(rewards.total[0]) and rewards.total[1] == 2.0
    assert checks.invalid_rows == 1


@pytest.mark.parametrize("bad", [1e5, -1e5, 1e300])
def test_a_reward_that_is_too_large_fails(bad):
    with pytest.raises(ProgramFailed) as failed:
        OutputChecks((), Limits()).accept(np.array([[1.0, bad]]))
    assert failed.value.status == "scale" and "allowed: 10000 in size" in str(failed.value)


def test_many_moderate_rewards_are_no_scale_failure():
    values = np.array([[9e3] * 1_000, [1e9] * 1_000])
    assert OutputChecks(("a",), Limits()).accept(values).valid.all()


def test_terms_that_are_declared_to_sum_must():
    limits = Limits(is_additive=True)
    assert OutputChecks(("a", "b"), limits).accept(np.array([[3.0], [1.0], [2.0]])).valid.all()
    assert OutputChecks((), limits).accept(np.array([[3.0]])).valid.all()
    for first in (1.1, 1e11):
        with pytest.raises(ProgramFailed) as failed:
            OutputChecks(("a", "b"), limits).accept(np.array([[3.0], [first], [1e11 if first > 2 else 2.0]]))
    assert failed.value.status == "sum" and "with their weights" in str(failed.value)


def test_columns_that_do_not_fit_are_the_callers_fault():
    with Sandbox(PROGRAM) as sandbox:
        with pytest.raises(InvalidProgram, match="reads a column 'cube' that is not there") as refused:
            sandbox.run({"tool": np.ones((2, 3)), "touches": np.ones(2)})
        assert refused.value.status == "unknown column"
        with pytest.raises(InvalidSetting, match="differ in length"):
            sandbox.run(columns(3) | {"cube": np.ones((2, 3))})
        with pytest.raises(InvalidSetting, match="'cube' is not a column of numbers"):
            sandbox.run(columns(3) | {"cube": np.array([["a"]] * 3, dtype=object)})
    with pytest.raises(InvalidSetting, match="'seconds' is out of range"):
        Limits(seconds=0.0)


def test_missing_syscall_filter_refuses_by_default(monkeypatch):
    monkeypatch.setattr(system_calls.sys, "platform", "sunos5")
    system_calls.filter_program.cache_clear()
    try:
        with Sandbox(PROGRAM) as sandbox, pytest.raises(SandboxUnavailable, match="on Linux only") as refused:
            sandbox.run(columns(2))
        assert "Limits(without_seccomp=True)" in str(refused.value)
        monkeypatch.setattr(sandbox_module, "filter_program", system_calls.filter_program)
        with Sandbox(PROGRAM, Limits(without_seccomp=True)) as sandbox:
            assert sandbox.run(columns(2)).valid.all() and "seccomp" not in sandbox.guards
    finally:
        monkeypatch.undo()
        system_calls.filter_program.cache_clear()


def test_a_filter_that_the_kernel_does_not_take_is_told(monkeypatch):
    monkeypatch.setattr(sandbox_module, "filter_program", lambda: b"\xff" * 8)
    with Sandbox(PROGRAM) as sandbox, pytest.raises(SandboxUnavailable, match="did not start") as refused:
        sandbox.run(columns(2))
    assert "prctl(22)" in str(refused.value)
    with Sandbox(PROGRAM, Limits(without_seccomp=True)) as sandbox:
        assert sandbox.run(columns(2)).valid.all() and "seccomp" not in sandbox.guards


def test_a_message_is_one_of_bounded_length_whatever_lies_there():
    layout = Layout({"x": ColumnLayout("<f8", ())}, 0, 1)
    memory = bytearray(layout.bytes_out)
    layout.write_message(memory, "é" * 10_000)
    assert set(layout.read_message(memory)) <= {"é", "\ufffd"}
    memory[layout.message :] = b"\xff" * (len(memory) - layout.message)
    assert len(layout.read_message(memory)) <= 4_096
    layout.write_message(memory, "a\x1b[2Jb\nc")
    assert layout.read_message(memory) == "a?[2Jb c"


def test_sandbox_fails_a_program_that_stays_slow(monkeypatch):
    """On rows that nobody tried it on, it may take nearly all of the time allowed, in every batch."""
    computed, times = sandbox_module.Process.computed, []

    def slow(process, columns, rows):
        found = computed(process, columns, rows)
        process.seconds = times.pop(0) if times else 0.0
        return found

    monkeypatch.setattr(sandbox_module.Process, "computed", slow)
    with Sandbox(program("-x[:, 0]")) as sandbox:
        batch = {"x": np.ones((4, 2), np.float32)}
        times += [1.5, 0.0] * 20
        for _ in range(40):
            sandbox.run(batch)  # now and then: the machine is busy
        times += [1.5] * 7 + [0.0] + [1.5] * 2
        for _ in range(9):
            sandbox.run(batch)
        with pytest.raises(ProgramFailed, match=r"too slow to learn from(.|\n)*1.5 s for 4 rows, again and again(.|\n)*1 s"):
            sandbox.run(batch)
        sandbox.run(batch)
