"""Off-policy learning from collectors: every step once, updates for each, parameters of bounded age, nothing lost."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.cluster.local import InProcessEngine, InProcessWorker
from robo_rl.collectors.asynchronous import AsynchronousTraining, Pace
from robo_rl.collectors.segment_log import SegmentLog
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.replay.rows import columns_of
from robo_rl.runs.checkpoints import checkpoint_steps


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("collecting_toys", Path(__file__).with_name("toys.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["collecting_toys"] = module
    spec.loader.exec_module(module)
    return module


toys = loaded()


class Shuffled(InProcessEngine):
    """Collectors answer in any order, some rarely; each its own requests in theirs."""

    def __init__(self, make: Any, seed: int = 0, slow: int = -1) -> None:
        super().__init__(make)
        self._random, self._slow, self.links = random.Random(seed), slow, list[InProcessWorker]()

    def start(self, job: bytes) -> InProcessWorker:
        self.links.append(super().start(job))
        return self.links[-1]

    def next(self, timeout: float) -> tuple[InProcessWorker, bytes | None] | None:
        asked = list(dict.fromkeys(link for link, *_ in self.open))
        quick = [link for link in asked if self.links.index(link) != self._slow]
        if not asked or (not timeout and self._random.random() < 0.8):
            return None
        if quick and self._random.random() < 0.95:
            asked = quick
        elif timeout and not quick:
            asked = asked[:1]
        chosen = self._random.choice(asked)
        first = next(each for each in self.open if each[0] is chosen)
        self.open.remove(first)
        self.open.appendleft(first)
        return super().next(timeout)


def remembered(training: AsynchronousTraining) -> Counter[tuple[int, int]]:
    """Returns birth and number of each step in the memory, with how many rows each has."""
    rows = training.step_learner.replay.state_dict()["rows"]
    starts, columns = rows["starts"].astype(bool), columns_of(toys.SPEC)
    birth, count = (rows["vectors"][starts][:, columns[name]].ravel().astype(int) for name in ("birth", "count"))
    return Counter(zip(birth.tolist(), count.tolist(), strict=True))


def logged(folder: Path) -> list[tuple[int, int]]:
    """Returns birth and number of each step that the log holds."""
    return [
        (int(step.observation["birth"][0]), int(step.observation["count"][0]))
        for _, segment in SegmentLog(folder / "collected").since(0)
        for step in segment.transitions()
    ]


def run(folder: Path, engine: Any, steps: int = 300, pace: Any = None, **observed: Any) -> tuple[AsynchronousTraining, Any]:
    training = toys.training_of(folder, toys.crew_of(engine, 3), steps, pace or toys.PACE)
    observer = toys.Observer(**observed)
    training.run(observer)
    return training, observer


def test_it_learns_every_step_once_with_an_update_for_each(tmp_path: Path) -> None:
    training, observer = run(tmp_path, Shuffled(toys.collector_of), every=10**6)
    assert training.step == 300 == sum(remembered(training).values()) and max(remembered(training).values()) == 1
    assert training.learner.updates == 300 - toys.SAMPLING.learning_starts + 1
    assert sorted(remembered(training)) == sorted(logged(tmp_path))
    assert training.policy.slope[0] > 0.5, "acts as it has learnt to"
    assert {each["length"] for each in observer.episodes} == {11} and len(observer.episodes) == training.source.episodes > 20
    assert {each["stop_reason"] for each in observer.episodes} == {"time_limit"}
    assert all(each["episode_return"] < 0 for each in observer.episodes)


def test_transitions_stay_within_interleaved_episodes(tmp_path: Path) -> None:
    training, _ = run(tmp_path, Shuffled(toys.collector_of))
    batch = training.step_learner.replay.sample(500)
    assert np.array_equal(batch.next_observations["count"], batch.observations["count"] + 1)
    assert np.array_equal(batch.next_observations["birth"], batch.observations["birth"])
    assert (batch.masks == 1).all(), "the clock is no end of the task"


@pytest.mark.parametrize("slow", [-1, 1])
@pytest.mark.parametrize("most_stale", [0, 16])
def test_staleness_of_parameters_is_bounded(tmp_path: Path, slow: int, most_stale: int) -> None:
    pace = Pace(segment=4, requests=2, every=5, most_stale=most_stale)
    training, observer = run(tmp_path, Shuffled(toys.collector_of, slow=slow), steps=600, pace=pace)
    allowed = (most_stale or 2 * 4 * 2 * 3) + 5
    staleness = [metrics["collect/staleness"] for metrics in observer.metrics]
    assert min(staleness) >= 0 and max(staleness) <= training.source.stalest
    assert allowed / 3 < training.source.stalest <= allowed


class Counting(Shuffled):
    """Remembers how much was under way at most."""

    most = 0

    def next(self, timeout: float) -> tuple[InProcessWorker, bytes | None] | None:
        self.most = max(self.most, len(self.open))
        return super().next(timeout)


def test_no_collector_is_asked_for_more_than_two_segments_ahead(tmp_path: Path) -> None:
    engine = Counting(toys.collector_of)
    run(tmp_path, engine)
    assert engine.most == 2 * 3


class Killed(Exception):
    pass


def killed() -> None:
    raise Killed


def test_killed_learner_resumes_identically_from_log(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(tmp_path, Shuffled(toys.collector_of, seed=4), steps=10**6, every=50, at=137, deed=killed)
    on_disk = logged(tmp_path)
    assert len(on_disk) > 137
    state = []
    for checkpoints_of in (tmp_path, tmp_path / "elsewhere"):  # from the checkpoint of step 100, and from nothing
        if checkpoints_of != tmp_path:
            (checkpoints_of / "collected").mkdir(parents=True)
            for path in (tmp_path / "collected").iterdir():
                (checkpoints_of / "collected" / path.name).write_bytes(path.read_bytes())
        observer = toys.Observer(every=10**6, at=len(on_disk), deed=killed)
        training = toys.training_of(checkpoints_of, toys.crew_of(InProcessEngine(toys.collector_of), 3), 10**6)
        assert training.step == (100 if checkpoints_of == tmp_path else 0) and training.pool.births >= 3
        training.pool.next = lambda timeout: None  # nobody has anything new yet
        with pytest.raises(Killed):
            training.run(observer)
        assert sorted(remembered(training).elements()) == sorted(on_disk)
        state.append({**training.learner.state_dict(), "slope": training.learner.policy.slope.tobytes()})
    assert state[0] == state[1]
    training, _ = run(tmp_path, Shuffled(toys.collector_of, seed=5), steps=400)
    assert training.resumed == "warm" and max(remembered(training).values()) == 1
    assert set(on_disk) <= set(remembered(training)) and sum(remembered(training).values()) == 400
    assert training.learner.updates == 400 - toys.SAMPLING.learning_starts + 1


class Losing(Shuffled):
    """Loses a collector after every twentieth answer."""

    count = 0

    def next(self, timeout: float) -> tuple[InProcessWorker, bytes | None] | None:
        found = super().next(timeout)
        self.count += found is not None
        if found is not None and self.count % 20 == 0:
            return found[0], None
        return found


def test_lost_collector_costs_open_requests_but_reuses_no_seed(tmp_path: Path) -> None:
    training, observer = run(tmp_path, Losing(toys.collector_of))
    assert observer.metrics[-1]["collect/lost"] == training.pool.losses >= 3
    assert training.pool.births == 3 + training.pool.losses
    assert sum(remembered(training).values()) == 300 and max(remembered(training).values()) == 1


def test_unneeded_log_segments_are_removed(tmp_path: Path) -> None:
    run(tmp_path, Shuffled(toys.collector_of), every=50)
    assert checkpoint_steps(tmp_path / "checkpoints") == [250, 300]
    first = sorted(int(path.stem) for path in (tmp_path / "collected").iterdir())[0]
    assert 150 <= first <= 250


def test_torn_last_segment_is_dropped_and_writing_resumes(tmp_path: Path) -> None:
    run(tmp_path, InProcessEngine(toys.collector_of), steps=40, every=10**6)
    whole, (file,) = logged(tmp_path), (tmp_path / "collected").iterdir()
    content = file.read_bytes()
    for damage in (content[:-3], content[:-3] + bytes([content[-3] ^ 1]) + content[-2:], content + b"\x05"):
        file.write_bytes(damage)
        found = logged(tmp_path)
        assert found == (whole if damage.startswith(content) else whole[: len(found)]) and len(whole) - len(found) <= 4
    file.write_bytes(content[:-3])
    before, rest = logged(tmp_path), SegmentLog(tmp_path / "collected")
    _, last = [*rest.since(0)][-1]
    assert rest.steps == len(before)
    from robo_rl.runs.checkpoints import packed

    rest.add(packed(last.content), len(last))
    rest.close()
    assert len(logged(tmp_path)) == len(before) + len(last) == SegmentLog(tmp_path / "collected").steps


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)

    class Full:
        def append(self, content: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    log._log = Full()  # type: ignore[assignment]
    with pytest.raises(RunError, match=r"could not be written.*\n.*No space left"):
        log.add(b"segment", 3)


@pytest.mark.parametrize("setting", ["segment", "requests", "every"])
def test_a_pace_of_nothing_is_refused(setting: str) -> None:
    with pytest.raises(InvalidSetting, match=setting):
        Pace(**{setting: 0})
    with pytest.raises(InvalidSetting, match="64 or more, or 0"):
        Pace(most_stale=63)
