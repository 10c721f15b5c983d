"""robo-rl robot drive, as typed in a terminal, and devices in other commands."""

import os
import pty
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from robo_app.arguments.recipe_settings import mappings_in, with_mappings
from robo_app.recipes.recipe import DemonstrationSettings, HumanSettings, read_recipe
from robo_app.robots.twin_process import twin_process
from robo_app.training.supervision import operator_of
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_real.console.operator_state import DecisionKind
from robo_real.teleoperation.teleoperator import MotionSettings, Reading, Teleoperator, make_teleoperator
from robo_rl.errors import InvalidSetting, MissingExtra, RobotUnavailable, TeleoperatorUnavailable, UnknownName
from robo_rl.types import ActionSource


class Terminal:
    """A terminal with `robo-rl robot drive` in it."""

    def __init__(self, *words):
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "robo_cli.main", "robot", "drive", *words]
        self.process = subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, text=True)
        os.close(slave)
        self.lines = queue.Queue()
        threading.Thread(target=lambda: [*map(self.lines.put, self.process.stdout)], daemon=True).start()

    def type(self, letters):
        os.write(self.master, letters)

    def until(self, words, letters=b""):
        """Returns the first line with these words; types letters twice a second meanwhile."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if letters:
                self.type(letters)
            with suppress(queue.Empty):
                if words in (line := self.lines.get(timeout=0.5)):
                    return line
        raise AssertionError(f"{words} was not said")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with suppress(OSError):
            os.close(self.master)


@pytest.mark.slow
def test_arm_is_driven_recorded_and_stopped_from_a_terminal(tmp_path):
    with twin_process(tmp_path / "audit.jsonl", task="robo/ArmReach-v0") as url:
        terminal = Terminal(url, "--out", str(tmp_path / "driven"), "--environment.arguments.max_steps", "400")
        try:
            assert re.search(r"http://127\.0\.0\.1:\d+/#\S+", terminal.until("the console is at"))
            terminal.until("W S A D move")
            terminal.until("episode running", b"\n")
            for _ in range(30):
                terminal.type(b"a")
                time.sleep(0.033)
            terminal.type(b"2")
            terminal.until("ended: operator")
            terminal.until("episode running", b"\n")
            os.close(terminal.master)  # the connection to the terminal breaks
            terminal.until("keyboard was lost: The terminal is gone.")
            terminal.until("operator_lost")
            terminal.process.send_signal(signal.SIGTERM)
            terminal.until("ended; the arm holds still")
            assert terminal.process.wait(30) == 0
        finally:
            terminal.end()
    assert "keyboard was lost: The terminal is gone" in (tmp_path / "audit.jsonl").read_text()
    dataset = Dataset(tmp_path / "driven")
    first, second = (dataset.read(entry) for entry in dataset.entries())
    driven = first.sources == ActionSource.HUMAN
    assert driven.sum() > 5 and first.actions[driven][:, 1].max() == pytest.approx(0.4, abs=0.01), "to the left, at 40 %"
    assert second.stop_reason == "operator_lost"


@pytest.mark.slow
def test_device_is_tried_out_without_a_robot():
    terminal = Terminal("--teleoperator.settings.linear_speed", "0.1")
    try:
        terminal.until("nothing moves")
        assert re.search(r"commands\s+dx \+0\.000 m/s\s+dy -0\.100 m/s", terminal.until("dy -0.1", b"d"))
        assert "toggle_gripper" in terminal.until("toggle_gripper", b"g")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(30) == 0
    finally:
        terminal.end()


@pytest.mark.slow
def test_drive_without_terminal_or_robot_is_one_error(tmp_path):
    with pytest.raises(RobotUnavailable, match="gives no answer"):
        dispatch(["robot", "drive", "http://127.0.0.1:1"])
    with pytest.raises(UnknownName, match="did you mean 'gamepad'"):
        dispatch(["robot", "drive", "http://127.0.0.1:1", "--teleoperator", "gampad"])
    with twin_process(tmp_path / "audit.jsonl") as url, pytest.raises(TeleoperatorUnavailable, match="standard input is no"):
        dispatch(["robot", "drive", url])


@pytest.mark.parametrize(("name", "modules"), [("spacemouse", ("hid", "hidraw")), ("gamepad", ("pygame",))])
def test_device_names_the_extra_that_it_needs(monkeypatch, name, modules):
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf'pip install "robo-rl\[{name}\]"'):
        make_teleoperator(name, {})


class Pedal(Teleoperator):
    options = MotionSettings
    reads = 0

    def connect(self):
        return "a pedal"

    def read(self):
        time.sleep(0.01)
        self.reads += 1
        return Reading({"z": -1.0 if self.reads > 3 else 0.0})

    def close(self):
        pass


@pytest.mark.slow
def test_device_beside_the_page_of_a_training_commands(tmp_path, monkeypatch):
    monkeypatch.setattr("robo_real.teleoperation.teleoperator.load", lambda group, name: {"pedal": Pedal}[name])
    recipe = read_recipe("arm-pick-hil")
    with twin_process(tmp_path / "audit.jsonl", task="robo/ArmPick-v0") as url:
        human = HumanSettings("console", port=0, browser=False, teleoperator="pedal", settings={"linear_speed": 0.06})
        recipe = replace(
            recipe,
            environment=replace(recipe.environment, name=f"robot:{url}"),
            demonstrations=DemonstrationSettings("recorded"),
            evaluation=replace(recipe.evaluation, every=0),
            human=human,
        )
        with operator_of(recipe) as operator:
            assert operator.tally.device == "a pedal: ready"
            state = operator.operator_state
            state.acquire(page := object())
            state.begin()
            end = time.monotonic() + 20
            while state.decision().kind is not DecisionKind.PERSON and time.monotonic() < end:
                state.update(page, False, np.zeros(5, np.float32))
                time.sleep(0.01)
            assert operator.hold_action.with_gripper_held(state.decision().action, {})[2] == pytest.approx(-0.2), "of 0.3 m/s"


def test_recipe_names_a_device_for_the_person_at_the_console():
    recipe = read_recipe("arm-pick-hil")
    additions, rest = mappings_in(recipe, ["--human.settings.linear_speed", "0.1", "--human.kind", "console"])
    assert rest == ["--human.kind", "console"] and additions == [("human.settings", {"linear_speed": 0.1})]
    with pytest.raises(InvalidSetting, match="kind console"):
        with_mappings(recipe, additions)
    assert HumanSettings("console", teleoperator="spacemouse", settings={"linear_speed": 0.1}).teleoperator == "spacemouse"
