"""Every command of README and docs, page by page, in order, from an empty folder, so small that a page takes seconds.

A command that cannot run here has its reason in `page_commands.NOT_HERE`; `page_commands.small` says how the others are shrunk.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import tyro
from page_commands import NOT_HERE, PAGES, ROOT, Page, reason_of, served, small

from robo_app.robots.twin_process import twin_process
from robo_cli.main import dispatch
from robo_rl.runs.checkpoints import checkpoint_steps
from robo_rl.runs.run import find_run

COMMANDS = [page for page in map(Page, PAGES) if page.commands]
CHEAP = {
    "docs/first-hour.md": 1,
    "docs/learners/sac.md": 1,
}
"""Page -> number of its blocks, from the first, that run with every test."""
TWIN = "http://127.0.0.1:5000"
EXAMPLE_RUN = (
    "train arm-pick-rlpd --steps 40 --learner.replay.learning-starts 20 --learner.network.hidden 8 --learner.batch-size 8"
    " --evaluation.every 20 --evaluation.episodes-during 1"
)
MAY_FAIL = ("doctor", "reward search", "robot check")
"""Commands that end with 1 if this machine has a problem, such as a full disk or much load, or if so short a training leads to
no winner."""
TOO_SHORT = "no update was made"
"""Said by a training that is so short here that it makes no update, before it ends with 1."""


class Parsed(Exception):
    """The options of a command are read."""


@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: page.name)
def test_options_of_commands_exist(page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read = tyro.cli

    def cli(*arguments: Any, **more: Any) -> None:
        read(*arguments, **more)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", cli)
    monkeypatch.chdir(tmp_path)
    for name, text in page.files.items():
        Path(name).write_text(text)
    for command in page.commands:
        if command.startswith("robo-rl ") and not re.search(
            r"--driver vendor|my_package|my_paper|arm-reach-rwr|train my-|\.yaml", command
        ):
            with pytest.raises(Parsed):
                print(command)
                dispatch(shlex.split(command)[1:])
                raise Parsed  # a command without options


def test_every_command_runs_or_has_a_reason() -> None:
    commands = [command for page in COMMANDS for command in page.commands]
    assert not [command for command in commands if reason_of(command) is None and not command.startswith(("robo-rl ", "echo "))]
    assert not [pattern for pattern in NOT_HERE if not any(re.search(pattern, command) for command in commands)]


def test_readme_shows_commands_of_the_first_hour() -> None:
    readme, first = (next(page for page in COMMANDS if page.name.endswith(name)) for name in ("README.md", "first-hour.md"))
    for block in readme.blocks:
        if block[0].startswith("robo-rl"):
            assert any([command for command in whole if command in block] == block for whole in first.blocks), block


def test_first_hour_is_pasted_in_order() -> None:
    """Up to its last section no command is to be filled in, and what waits for the reader ends its block."""
    first = next(page for page in COMMANDS if page.name.endswith("first-hour.md"))
    longer = next(number for number, block in enumerate(first.blocks) if "RUN_A" in block[0])
    pasted = first.blocks[:longer]
    assert len(pasted) >= 7
    assert not [command for block in pasted for command in block if re.search(r"\b[A-Z]{3,}\b|\d+\.\d+\.\d+\.\d+", command)]
    assert not [command for block in pasted for command in block[:-1] if served(shlex.split(command)[1:])]


def serve(words: list[str], says: str) -> None:
    """Run a command that serves until it says its address, look whether it answers, and interrupt it."""
    with _serving(words, says) as (process, line):
        if address := re.search(r"http://[^\s,]+", line):
            assert urllib.request.urlopen(address[0], timeout=30).status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@contextmanager
def _serving(words: list[str], says: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen([sys.executable, "-m", "robo_cli.main", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, next(line for line in process.stdout if says in line)
        finally:
            process.kill()


class Reader:
    """Runs the commands of a page, as its reader does."""

    def __init__(self, stack: ExitStack, output: pytest.CaptureFixture[str]) -> None:
        self._stack, self._output = stack, output
        self._twin = ""

    def run(self, command: str) -> None:
        """Run a command with the names of this place in it."""
        if written := re.fullmatch(r'echo "(.*)" > (\S+)', command):
            Path(written[2]).write_text(f"{written[1]}\n")
            return
        words = small(shlex.split(command)[1:])
        says = served(words)
        if words[:2] == ["robot", "serve"] and says is not None:
            _, line = self._stack.enter_context(_serving(words, says))
            self._twin = re.findall(r"http://[^\s,]+", line)[0]
            return
        words = [self._filled(word) for word in words]
        if says is not None:
            serve(words, says)
        else:
            status = dispatch(words)
            said = self._output.readouterr().out
            print(said)
            may_fail = " ".join(words).startswith(MAY_FAIL) or (words[0] == "train" and TOO_SHORT in said)
            assert status == 0 or (status == 1 and may_fail), command

    def _filled(self, word: str) -> str:
        if word == "DATASET":
            return self._demonstrations()
        if word == "URL" or TWIN in word:
            if not self._twin:
                self._twin = self._stack.enter_context(twin_process(Path("twin.log"), task="robo/ArmPick-v0", cameras=[]))
            return self._twin if word == "URL" else word.replace(TWIN, self._twin)
        if word.startswith(("~/", "/")):
            return f"home/{word.lstrip('~/')}"
        if word in ("RUN", "RUN_A", "RUN_B", "BASE") or word.startswith("RUN@"):
            return self._run(word)
        if word == "ARM_RUN":
            return self._example("arm-runs")  # RUN is still the page's own
        if word == "latest":
            self._run(word)  # one that the reader has
        return word

    def _run(self, word: str) -> str:
        runs = sorted([*Path("runs").glob("*/recipe.yaml"), *Path("runs").glob("*-seeds/runs/*/recipe.yaml")])
        if not runs:
            return self._example()
        if "@" in word:
            run = find_run("latest", Path("runs"))
            return f"{run.path}@{checkpoint_steps(run.path / 'checkpoints')[-1]}"
        return str(runs[{"RUN_A": -2, "BASE": 0}.get(word, -1)].parent)

    def _example(self, out: str = "runs") -> str:
        dispatch([*shlex.split(EXAMPLE_RUN), "--demonstrations.episodes", "1", "--evaluation.episodes", "1", "--out", out])
        return str(find_run("latest", Path(out)).path)

    def _demonstrations(self) -> str:
        if not Path("data/demos").exists():
            dispatch(
                shlex.split("record robo/ArmPick-v0 --episodes 1 --out data/demos --environment.arguments.action_repeat 3")
            )
        return "data/demos"


def run_in_order(page: Page, commands: list[str], output: pytest.CaptureFixture[str]) -> None:
    """Run commands of a page in the working folder."""
    for name, text in page.files.items():
        Path(name).write_text(text)
    Path("docs").symlink_to(ROOT / "docs")
    with ExitStack() as stack:
        reader = Reader(stack, output)
        for command in commands:
            if reason_of(command) is None:
                reader.run(command)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("page", [page for page in COMMANDS if page.name in CHEAP], ids=lambda page: page.name)
def test_first_blocks_run_in_order(
    page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_in_order(page, [command for block in page.blocks[: CHEAP[page.name]] for command in block], capsys)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::robo_rl.environments.foreign.UnitsUnknown")
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: page.name)
def test_all_commands_run_in_order(
    page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_in_order(page, page.commands, capsys)
