"""The log of steps: what was written is read once and in order, wherever writer and reader were killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factories import make_spec
from robo_rl.rollout.step_log import EpisodeStart, StepLog, StepReader
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import ActionSource, Transition

SPEC = make_spec("test/Line", ArraySpec("x", (1,)))


def at(place: float) -> dict[str, np.ndarray]:
    return {"x": np.float32([place])}


def write(log: StepLog, count: int, start: float = 0.0) -> None:
    """Writes an episode of so many steps, whose places go on by 1."""
    log.begin(at(start), seed=3, instruction="go on")
    for step in range(count):
        place, action = start + step, np.float32([0.5])
        human = ActionSource.HUMAN if step == 1 else ActionSource.POLICY
        ends = step == count - 1
        info = {"stop_reason": "goal", "success": True} if ends else {}
        log.step(Transition(at(place), action, place, at(place + 1), ends, False, -action, human, info))


def read(reader: StepReader) -> list[str | float]:
    """Returns the rewards, which are the places, and "begun"."""
    found: list[str | float] = []
    misses = 0
    while misses < 2:
        item = reader.following()
        misses += item is None
        if item is not None:
            found.append("begun" if isinstance(item, EpisodeStart) else item.reward)
    return found


def test_what_is_written_is_read_in_order_and_whole(tmp_path: Path) -> None:
    log, reader = StepLog(tmp_path, SPEC), StepReader(tmp_path)
    assert read(reader) == []
    write(log, 3)
    begun = reader.following()
    assert isinstance(begun, EpisodeStart) and begun.instruction == "go on" and begun.observation["x"] == 0
    steps = [reader.following() for _ in range(3)]
    assert all(isinstance(step, Transition) for step in steps)
    assert [(step.observation["x"][0], step.next_observation["x"][0], step.source) for step in steps] == [
        (0, 1, ActionSource.POLICY),
        (1, 2, ActionSource.HUMAN),
        (2, 3, ActionSource.POLICY),
    ]
    assert [step.terminated for step in steps] == [False, False, True]
    assert steps[2].info == {"stop_reason": "goal", "success": True, "reward_terms": {}} and "success" not in steps[0].info
    assert steps[0].action == 0.5 and steps[0].policy_action == -0.5 and reader.observation["x"] == 3
    assert [step.reward for step in reader.newest(2)] == [1, 2] and reader.newest(0) == []
    write(log, 2, 10)
    assert read(reader) == ["begun", 10, 11] and reader.step == log.steps == 5
    log.close()
    reader.close()


@pytest.mark.parametrize("step", range(8))
def test_a_reader_goes_on_behind_any_step(tmp_path: Path, step: int) -> None:
    log = StepLog(tmp_path, SPEC)
    for start, count in ((0, 3), (3, 1), (4, 3)):
        write(log, count, start)
    reader = StepReader(tmp_path, step)
    assert [place for place in read(reader) if place != "begun"] == list(range(step, 7))
    log.close()
    reader.close()


def test_torn_step_is_dropped_and_next_writer_appends(tmp_path: Path) -> None:
    log = StepLog(tmp_path, SPEC)
    write(log, 3)
    log.begin(at(3), seed=3, instruction=None)  # killed before its first step
    log.close()
    first = min(tmp_path.glob("*.journal"))
    first.write_bytes(first.read_bytes()[:-5])
    (tmp_path / "0000000003-00000001.journal").unlink()
    reader = StepReader(tmp_path)
    assert read(reader) == ["begun", 0, 1]
    second = StepLog(tmp_path, SPEC)
    assert (second.steps, second.episodes) == (2, 1)
    second.begin(at(7), seed=3, instruction=None)
    second.close()
    third = StepLog(tmp_path, SPEC)
    assert (third.steps, third.episodes) == (2, 2)
    write(third, 2, 8)
    assert read(reader) == ["begun", "begun", 8, 9] and reader.step == 4
    third.close()
    reader.close()


def test_step_log_passes_over_an_episode_that_never_began(tmp_path: Path) -> None:
    write(log := StepLog(tmp_path, SPEC), 2)
    log.begin(at(2), seed=3, instruction=None)
    log.close()
    (tmp_path / "0000000002-00000001.journal").write_bytes(b"")  # killed before its first record was written
    reader = StepReader(tmp_path)
    assert read(reader) == ["begun", 0, 1], "as long as no later episode has begun, it may come yet"
    write(later := StepLog(tmp_path, SPEC), 1, 2)
    later.close()
    assert read(reader) == ["begun", 2] and len([*later.since(0)]) == 5
    reader.close()


def test_what_a_power_cut_took_is_not_counted_again(tmp_path: Path) -> None:
    write(log := StepLog(tmp_path, SPEC), 3)
    log.close()
    later = StepLog(tmp_path, SPEC, 5)  # a checkpoint holds five
    write(later, 1, 5)
    later.close()
    reader = StepReader(tmp_path, 5)
    assert read(reader) == ["begun", 5]
    reader.close()


def test_unneeded_steps_are_removed_and_rest_is_readable(tmp_path: Path) -> None:
    log = StepLog(tmp_path, SPEC)
    for start in (0, 3, 6):
        write(log, 3, start)
    reader = StepReader(tmp_path, 9)
    reader.forget(6)  # a learner that resumes after step 6 may still ask for the steps before it in its episode
    assert len(list(tmp_path.glob("*.journal"))) == 2
    behind = StepReader(tmp_path, 6)
    assert [step.reward for step in behind.newest(2)] == [4, 5] and read(behind) == ["begun", 6, 7, 8]
    reader.forget(9)
    assert StepLog(tmp_path, SPEC).steps == 9
    for end in (log, reader, behind):
        end.close()
