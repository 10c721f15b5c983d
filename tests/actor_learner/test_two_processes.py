"""Acting and learning in two processes: whichever is killed, no step is lost and none is learnt from twice."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from robo_rl.errors import RunError
from robo_rl.replay.rows import columns_of
from robo_rl.runs.checkpoints import load_checkpoint
from robo_rl.training.actor_learner.acting import ActingTraining, RemoteLearner
from robo_rl.training.actor_learner.server import Finished

SCRIPT = Path(__file__).with_name("halves.py")


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("halves", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


halves = loaded()


class Alone:
    """Stands for an acting process of which nothing more is to be expected than what the log has."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def serve(self, step: int, training: Any, timeout: float = 0.0) -> None:
        if timeout:  # it would wait
            raise Finished


def tell(folder: Path, **settings: Any) -> None:
    (folder / "settings.json").write_text(json.dumps(settings))


@pytest.fixture
def acting() -> Iterator[Any]:
    """Returns a function that makes acting halves; none of their learners outlives the test."""
    made: list[ActingTraining] = []

    def make(*arguments: Any) -> ActingTraining:
        made.append(halves.acting(*arguments))
        return made[-1]

    yield make
    for training in made:
        training.kill()


def run(training: ActingTraining, folder: Path) -> Any:
    """Returns the observer of a training that went to its end."""
    observer = halves.Observer(folder, halves.settings(folder)["checkpoint_every"])
    training.run(observer)
    training.close()
    return observer


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def remembered(folder: Path) -> list[str]:
    """Returns the steps in the learner's memory, each once for every row."""
    rows = load_checkpoint(folder / "checkpoints").parts["replay"]["rows"]
    starts = rows["starts"].astype(bool)
    columns = columns_of(halves.SPEC)
    session, count = (rows["vectors"][starts][:, columns[name]].ravel() for name in ("session", "count"))
    return [f"{one:.0f} {other:.0f}" for one, other in zip(session, count, strict=True)]


def assert_nothing_lost_nothing_twice(folder: Path, actors_killed: int = 0) -> None:
    memory, executed, acknowledged = (
        Counter(remembered(folder)),
        lines(folder / "executed.txt"),
        lines(folder / "acknowledged.txt"),
    )
    assert max(memory.values()) == 1
    assert set(acknowledged) <= set(memory) <= set(executed)
    assert len(executed) - len(memory) <= actors_killed  # the running step of one that was killed


def assert_learnt_as_if_nothing_had_happened(folder: Path) -> None:
    """The learner's state follows from the log alone, bit for bit: batches, updates and their order are the same."""
    final = load_checkpoint(folder / "checkpoints")
    alone = halves.learning(halves.settings(folder) | {"seconds": 0.0}, final.step)
    reader = halves.KeepingReader(folder / "steps")
    with pytest.raises(Finished):
        alone.learn_from(reader, Alone())
    reader.close()
    assert alone.step == final.step
    expected, found = alone.learner.state_dict(), final.parts["learner"]
    assert found["updates"] == expected["updates"] == final.step - halves.SAMPLING.learning_starts + 1
    assert found["trace"] == expected["trace"] and found["slope"].tobytes() == expected["slope"].tobytes()


class Killing(halves.Numbered):  # type: ignore[name-defined, misc]
    """An environment in which something happens at given steps."""

    def __init__(self, folder: Path, deeds: dict[int, Any]) -> None:
        super().__init__(folder)
        self._deeds, self.steps = deeds, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        self._deeds.get(self.steps, lambda: None)()
        return super().step(action)


def send(folder: Path, number: int) -> Any:
    return lambda: os.kill(learner_of(folder), number)


def learner_of(folder: Path) -> int:
    return int((folder / "learner.pid").read_text())


def kill_and_see_it_gone(folder: Path) -> Any:
    def deed() -> None:
        learner = learner_of(folder)
        os.kill(learner, signal.SIGKILL)
        while Path(f"/proc/{learner}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.001)

    return deed


@pytest.mark.slow
def test_policy_learns_only_with_parameters_of_learner_process(tmp_path: Path, acting: Any) -> None:
    training = acting(tmp_path, 300)
    run(training, tmp_path)
    assert training.policy.slope[0] > 0.5 and training.step_learner.version == 300
    assert_nothing_lost_nothing_twice(tmp_path)
    assert_learnt_as_if_nothing_had_happened(tmp_path)


@pytest.mark.slow
def test_parameters_that_are_never_sent_teach_nothing(tmp_path: Path, acting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteLearner, "renew", lambda self: None)
    training = acting(tmp_path, 300)
    run(training, tmp_path)
    assert training.policy.slope[0] == 0


def test_killed_learner_is_replaced_and_versions_only_grow(tmp_path: Path, acting: Any) -> None:
    taken: list[int] = []
    deeds = {90: send(tmp_path, signal.SIGKILL), 150: send(tmp_path, signal.SIGKILL)}
    training = acting(tmp_path, 240, Killing(tmp_path, deeds))
    load, told = training.policy.load_parameters, []

    def watched(parameters: Any) -> None:
        taken.append(training.step_learner.version)
        load(parameters)

    training.policy.load_parameters = watched
    training.process.tell = told.append
    observer = run(training, tmp_path)
    assert taken == sorted(set(taken)) and len(taken) > 10 and taken[-1] == 240
    staleness = [metrics["learner/staleness"] for metrics in observer.seen]
    assert min(staleness) >= 0 and max(staleness) <= 20 + 1 + 1  # what may be ahead, the running step, one being sent
    assert len(told) == 2 and all(words.startswith("the learner died at step") for words in told)
    assert training.step_learner.holds >= 2 and training.process.restarts == 2
    assert_nothing_lost_nothing_twice(tmp_path)
    assert_learnt_as_if_nothing_had_happened(tmp_path)


@pytest.mark.slow
def test_a_learner_that_hangs_is_replaced_and_nothing_is_lost(tmp_path: Path, acting: Any) -> None:
    tell(tmp_path, beat=1.5, slow=25.0)  # it may hang while it writes the checkpoint of step 80
    training = acting(tmp_path, 140, Killing(tmp_path, {90: send(tmp_path, signal.SIGSTOP)}))
    told: list[str] = []
    training.process.tell = told.append
    run(training, tmp_path)
    assert {words.partition(" at step")[0] for words in told} == {"the learner said nothing for too long"}
    assert_nothing_lost_nothing_twice(tmp_path)
    assert_learnt_as_if_nothing_had_happened(tmp_path)


@pytest.mark.slow
def test_slow_learner_blocks_actor_without_drops(tmp_path: Path, acting: Any) -> None:
    tell(tmp_path, seconds=0.02, most_ahead=5)
    behind: list[int] = []
    training = acting(tmp_path, 120)
    remember = training.step_learner.add

    def watched(transition: Any) -> None:
        remember(transition)
        behind.append(training.step_learner.log.steps - training.process.step)

    training.step_learner.add = watched
    observer = run(training, tmp_path)
    assert 5 <= max(behind[31:]) <= 6  # the step that was just taken is not known to the learner
    assert training.step_learner.holds > 5 and observer.seen[-1]["learner/held_s"] > 0.5
    assert_nothing_lost_nothing_twice(tmp_path)


class InRealTime(Killing):
    """Its time goes on: it must be told to hold, and is not stepped while it does."""

    holding = 0

    def hold(self) -> None:
        self.holding += 1


@pytest.mark.real_time
def test_held_episode_ends_while_learner_is_absent(tmp_path: Path, acting: Any) -> None:
    tell(tmp_path, most_ahead=1000)
    deeds: dict[int, Any] = {}
    environment = InRealTime(tmp_path, deeds)
    training = acting(tmp_path, 120, environment)

    def kill_and_hear_of_it() -> None:
        kill_and_see_it_gone(tmp_path)()
        # or the episode may be over before the thread that receives had its turn
        training.process._process._messages.receiver.join()

    deeds[67] = kill_and_hear_of_it
    observer = run(training, tmp_path)
    assert observer.ends.count("learner_lost") == 1
    assert environment.holding == 3  # before there is a learner, after it died, and at the end
    assert_nothing_lost_nothing_twice(tmp_path)
    assert_learnt_as_if_nothing_had_happened(tmp_path)


@pytest.mark.slow
def test_repeated_learner_death_ends_training_with_its_error(tmp_path: Path, acting: Any) -> None:
    tell(tmp_path, last_words="no room for the replay memory", deaths=2)
    training = acting(tmp_path, 10)
    with pytest.raises(RunError, match=r"The learner died 2 times in a row(.|\n)*no room for the replay memory"):
        run(training, tmp_path)


@pytest.mark.slow
def test_what_the_learner_refuses_ends_the_training_and_is_told(tmp_path: Path, acting: Any) -> None:
    tell(tmp_path, fails_at=7)
    training = acting(tmp_path, 200)
    with pytest.raises(RunError, match=r"The learner cannot go on(.|\n)*Update 7 was refused"):
        run(training, tmp_path)


@pytest.mark.slow
def test_failed_checkpoint_is_reported_to_next_request(tmp_path: Path, acting: Any) -> None:
    (tmp_path / "checkpoints").write_text("no folder")
    training = acting(tmp_path, 160)
    with pytest.raises(OSError, match="Not a directory"):
        run(training, tmp_path)  # asked for at each 40th step


def killed_somewhere(folder: Path, steps: int, seed: int, kills: int) -> int:
    """Runs both halves to the end while they are killed at random moments; returns how often the acting one was."""
    generator, actors_killed = random.Random(seed), 0
    victims = [generator.choice(["learner", "actor", "both"]) for _ in range(kills)]
    process = subprocess.Popen([sys.executable, str(SCRIPT), "act", str(folder), str(steps)])
    try:
        for victim in victims:
            time.sleep(generator.uniform(0.2, 3.0))
            if process.poll() is not None:
                break
            if victim != "actor" and (folder / "learner.pid").exists():
                try:
                    os.kill(int((folder / "learner.pid").read_text()), signal.SIGKILL)
                except (ProcessLookupError, ValueError):
                    continue
            if victim != "learner":
                process.kill()
                process.wait()
                actors_killed += 1
                process = subprocess.Popen([sys.executable, str(SCRIPT), "act", str(folder), str(steps)])
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    return actors_killed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_kills_of_both_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    tell(tmp_path, seconds=0.003)
    actors_killed = killed_somewhere(tmp_path, 2000, seed, 8)
    assert_nothing_lost_nothing_twice(tmp_path, actors_killed)
    assert_learnt_as_if_nothing_had_happened(tmp_path)


@pytest.mark.slow
def test_both_killed_at_once_go_on_where_they_were(tmp_path: Path) -> None:
    tell(tmp_path, seconds=0.003)
    command = [sys.executable, str(SCRIPT), "act", str(tmp_path), "160"]
    process = subprocess.Popen(command)
    end = time.monotonic() + 60
    while not (tmp_path / "acknowledged.txt").exists() or len(lines(tmp_path / "acknowledged.txt")) < 70:
        assert time.monotonic() < end
        time.sleep(0.01)
    send(tmp_path, signal.SIGKILL)()
    process.kill()
    process.wait()
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
    assert_nothing_lost_nothing_twice(tmp_path, 1)
    assert_learnt_as_if_nothing_had_happened(tmp_path)
