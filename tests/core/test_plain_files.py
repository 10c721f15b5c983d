"""Files from elsewhere: a pipe ends with an error instead of never, deep YAML with one that names the file."""

import io
import os
from pathlib import Path

import pytest

from robo_policies.sb3.zoo import read_zoo
from robo_rl.errors import InvalidSetting, RoboRLError
from robo_rl.rewards.chat.log import CallLog, read_log
from robo_rl.rewards.chat.opening import language_model, require_task
from robo_rl.rollout.step_log import StepReader
from robo_rl.runs.run import Run
from robo_rl.system.durable_files import exclusive_lock, is_locked
from robo_rl.system.framed_log import FramedLog, read_record, read_records
from robo_rl.system.plain_files import parse_yaml, read_yaml

pytestmark = pytest.mark.timeout(20)
DEEP = "[" * 5_000
READERS = {
    "a lock": exclusive_lock,
    "a log of records": FramedLog,
    "records": lambda path: [*read_records(path)],
    "a log of calls": read_log,
    "a log of calls to continue": CallLog,
    "YAML": read_yaml,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_pipe_is_an_error(tmp_path: Path, read) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises((OSError, RoboRLError), match="not a plain file"):
        read(tmp_path / "pipe.yaml")


def test_a_pipe_in_place_of_the_lock_is_no_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")


def test_pipes_in_the_folder_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    for name in ("recipe.yaml", "spec.json", "run.json", "metrics.jsonl", "status.json"):
        os.mkfifo(tmp_path / name)
    os.mkfifo(tmp_path / "steps" / f"{0:010d}-{0:08d}.journal")
    run = Run(tmp_path)
    steps = StepReader(tmp_path / "steps")
    for look in (lambda: run.recipe, lambda: run.spec, lambda: run.description, run.metrics, steps.following):
        with pytest.raises((OSError, RoboRLError, ValueError), match="not a plain file"):
            look()


DEEP_FILES = {
    "a language model": lambda path: language_model(str(path)),
    "a pack": lambda path: require_task(f"pack:{path}", "robo/ArmReach-v0"),
    "a zoo file": lambda path: read_zoo(path.read_text(), algorithm="sac", environment="Hopper-v5"),
    "a text": lambda path: parse_yaml(path.read_text(), "It"),
}


@pytest.mark.slow
@pytest.mark.parametrize("read", DEEP_FILES.values(), ids=DEEP_FILES)
def test_deep_yaml_is_one_error(tmp_path: Path, read) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(DEEP)
    with pytest.raises(InvalidSetting, match=r"is not YAML(.|\n)*nested too deeply"):
        read(path)


def test_a_short_read_is_no_torn_record(tmp_path: Path) -> None:
    """As over a network: the writer would cut the record off."""

    class Slow(io.FileIO):
        def read(self, size: int = -1) -> bytes:
            return super().read(min(size, 3))

    log = FramedLog(tmp_path / "log")
    log.append(b"a record of some bytes")
    log.close()
    with Slow(tmp_path / "log") as file:
        assert read_record(file) == b"a record of some bytes"
