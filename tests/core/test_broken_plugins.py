"""One broken package of somebody else breaks nothing: others are listed, it is named with its error, in every group."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import get_args

import pytest

from robo_app.machine.plugin_checks import plugins
from robo_cli.main import dispatch
from robo_datasets.conversion import formats
from robo_rl.entry_points import load
from robo_rl.environments.make import environment_names, make_environment
from robo_rl.errors import BrokenPlugin, UnknownName
from robo_rl.papers import Group

GROUPS = get_args(Group)
FAULTS = {
    "attribute": ("lab_simulator:Nothing", "AttributeError: module 'lab_simulator' has no attribute 'Nothing'"),
    "raises": ("lab_raises:Anything", "ZeroDivisionError: division by zero"),
    "exits": ("lab_exits:Anything", "SystemExit: 3"),
    "missing": ("lab_missing:Anything", "ModuleNotFoundError: No module named 'rails'"),
}
MODULES = {
    "lab_simulator": "class Names:\n    def names(self):\n        raise ValueError('no licence')\nFAMILY = Names()\n",
    "lab_raises": "1 / 0\n",
    "lab_exits": "raise SystemExit(3)\n",
    "lab_missing": "import rails\n",
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Installs a package that declares four broken components in every group, and a family that cannot list its tasks."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    information = tmp_path / "lab_simulator-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-simulator\nVersion: 0.1\n")
    lines = [f"[robo_rl.{group}]\n" + "".join(f"{name} = {point}\n" for name, (point, _) in FAULTS.items()) for group in GROUPS]
    declared = "\n".join(lines).replace("[robo_rl.environments]\n", "[robo_rl.environments]\nunlisted = lab_simulator:FAMILY\n")
    (information / "entry_points.txt").write_text(declared)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return "lab-simulator"


@pytest.fixture(autouse=True)
def forgotten() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", [*FAULTS])
def test_loading_a_broken_plugin_names_its_package(lab: str, group: Group, name: str) -> None:
    with pytest.raises(BrokenPlugin) as told:
        load(group, name)
    text = str(told.value)
    assert f"The plug-in {name!r} of the package {lab} does not work." in text
    assert f"got:     {FAULTS[name][1]}" in text and f"robo_rl.{group}" in text and f"pip uninstall {lab}" in text


def test_other_environments_are_listed_beside_broken_ones(lab: str) -> None:
    names = environment_names()
    assert names["robo/ArmPick-v0"] is None and names["gymnasium/Ant-v5"] is None
    for name, (_, problem) in FAULTS.items():
        assert lab in str(names[f"{name}/*"]) and problem in str(names[f"{name}/*"])
    assert "ValueError: no licence" in str(names["unlisted/*"])
    with pytest.raises(UnknownName, match="Unknown environment 'nope/x'"):
        make_environment("nope/x")
    with pytest.raises(BrokenPlugin, match="no licence"):
        make_environment("unlisted/x")


@pytest.mark.parametrize(
    "words", [["envs"], ["envs", "ai"], ["envs", "raises"], ["learners"], ["reward", "list"], ["recipes"]], ids=" ".join
)
def test_lists_of_commands_go_on_beside_broken_ones(lab: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(words) == 0
    page = capsys.readouterr().out
    if words == ["envs"]:
        assert "\nraises               not available: The plug-in 'raises' of the package" in page
    if words == ["envs", "ai"]:
        assert "minigrid/BabyAI-GoToObj-v0\n" in page and "raises/*  not available: The plug-in 'raises' of the package" in page
    if words == ["reward", "list"]:
        assert "\noracle " in page and "division by zero" in page


def test_formats_that_work_are_offered(lab: str) -> None:
    assert {form.name for form in formats()} == {"minari", "robomimic", "d4rl", "lerobot", "zarr", "rosbag", "rlds"}


@pytest.mark.slow
def test_doctor_reports_every_broken_plugin(lab: str) -> None:
    problems = [finding for finding in plugins() if finding.level == "problem"]
    assert len(problems) == len(GROUPS) * len(FAULTS) + 1
    for group in GROUPS:
        for name, (_, problem) in FAULTS.items():
            text = f"{group}: {name!r} of the package {lab} does not work: {problem}"
            assert any(finding.text == text for finding in problems)
    assert all(f"pip uninstall {lab}" in str(finding.fix) for finding in problems)


@pytest.mark.slow
def test_doctor_reports_a_name_that_two_packages_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_lab.py").write_text("class SAC: ...\n")
    information = tmp_path / "other_lab-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other-lab\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text("[robo_rl.learners]\nsac = other_lab:SAC\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    found = [finding for finding in plugins() if finding.level == "warning"]
    assert len(found) == 1 and found[0].text.startswith("learners: 'sac' is declared by other-lab and robo-rl; that of ")


@pytest.mark.slow
def test_doctor_is_content_with_what_comes_with_the_workbench() -> None:
    assert [finding.level for finding in plugins()] == ["ok"]
