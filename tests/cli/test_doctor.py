import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from factories import bare_environment
from robo_app.machine import machine_checks, package_checks, plugin_checks
from robo_app.machine.finding import Finding
from robo_cli.machine import doctor
from robo_cli.machine.doctor import Doctor
from robo_rl.errors import SandboxUnavailable
from robo_rl.system import opengl

ROOT = Path(__file__).parents[2]


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Returns install(name, version, *requirements); only what a test installs is visible to importlib.metadata."""

    def install(name: str, version: str, *requirements: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        (folder / "METADATA").write_text("\n".join(lines + [f"Requires-Dist: {need}" for need in requirements]) + "\n")

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return install


def texts(check) -> list[str]:
    return [f"{finding.level}: {finding.text} -> {finding.fix}" for finding in check()]


LOCK_LINE = f"pip install --no-deps -r {ROOT}/locks/default.txt"


def test_mujoco_4_is_a_problem(packages):
    packages("mujoco", "4.0.0")
    assert texts(package_checks.mujoco) == [
        "problem: mujoco 4.0.0 is installed; the simulators here need mujoco 3"
        f" -> pip uninstall -y mujoco mujoco-core mujoco-studio; {LOCK_LINE}"
    ]


def test_missing_mujoco_is_a_problem(packages):
    assert texts(package_checks.mujoco) == [f"problem: mujoco is not installed -> {LOCK_LINE}"]


@pytest.mark.parametrize(("mujoco", "made_for"), [("3.17.0", "3.8.1"), ("3.8.1", "3.17.0")])
def test_doctor_reports_mismatch_of_dm_control_and_mujoco(packages, mujoco, made_for):
    packages("mujoco", mujoco)
    packages("dm-control", "1.0.41", "mujoco-mjx; extra == 'mjx'", f"mujoco>={made_for}")
    assert texts(package_checks.mujoco) == [
        f"ok: mujoco {mujoco} -> None",
        f"problem: dm_control 1.0.41 goes with mujoco {made_for}, not {mujoco} -> {LOCK_LINE}",
    ]


def test_packages_that_a_newer_mujoco_breaks_are_named(packages):
    packages("mujoco", "3.17.0")
    packages("metaworld", "3.1.1")
    packages("gymnasium-robotics", "1.4.2")
    assert texts(package_checks.mujoco)[1:] == [
        "problem: gymnasium-robotics 1.4.2 fails from mujoco 3.12 on; 3.17.0 is installed"
        f" -> {LOCK_LINE}; or do without it: pip uninstall -y gymnasium-robotics",
        "problem: metaworld 3.1.1 fails from mujoco 3.17 on; 3.17.0 is installed"
        f" -> {LOCK_LINE}; or do without it: pip uninstall -y metaworld",
    ]


def test_the_locked_pair_raises_no_complaint(packages):
    packages("mujoco", "3.8.1")
    packages("dm-control", "1.0.41", "mujoco>=3.8.1")
    packages("metaworld", "3.1.1")
    packages("gymnasium-robotics", "1.4.2")
    assert texts(package_checks.mujoco) == ["ok: mujoco 3.8.1 -> None"]


@pytest.mark.parametrize(
    ("folder", "keep", "other"),
    [("cv2", "opencv-python-headless", "opencv-python"), ("pygame", "pygame-ce", "pygame")],
)
def test_two_wheels_of_one_folder_are_a_problem(packages, folder, keep, other):
    packages(other, "1.0")
    assert texts(package_checks.double_wheels) == []
    packages(keep, "2.0")
    assert texts(package_checks.double_wheels) == [
        f"problem: {keep} and {other} are both installed and share the folder {folder}"
        f" -> pip uninstall -y {keep} {other}; pip install --no-deps {keep}==2.0"
    ]


def test_lock_of_the_checkout_is_compared(packages):
    packages("numpy", "1.0")
    (found,) = package_checks.locked_versions()
    assert found.level == "warning" and "numpy 1.0 (lock: 2." in found.text and "mujoco missing (lock: 3." in found.text
    assert found.fix == LOCK_LINE


def test_lock_that_is_not_there_is_a_problem(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(package_checks, "LOCK", tmp_path / "default.txt")
    monkeypatch.setattr(Doctor, "checks", property(lambda _: {"versions": package_checks.locked_versions}))
    assert doctor.run(Doctor()) == 1
    assert "problem  the check 'versions' failed: FileNotFoundError" in capsys.readouterr().out


@pytest.mark.slow
def test_optional_package_that_is_missing_is_no_problem(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "gymnasium_robotics"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "robo_sims.gymnasium_robotics_tasks", raising=False)
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    monkeypatch.setattr(Doctor, "checks", property(lambda _: {"plug-ins": plugin_checks.plugins}))
    assert doctor.run(Doctor()) == 0
    shown = capsys.readouterr().out
    assert re.match(r"ok       all \d+ components of installed packages can be loaded\n", shown)
    assert "ok       optional, not installed: Gymnasium-Robotics needs the package 'gymnasium_robotics'" in shown
    assert 'do: pip install "robo-rl[gymnasium-robotics]"' in shown


def unpacked_wheel(folder: Path) -> Path:
    """Returns the folder of a wheel's contents, built from this checkout."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_doctor_of_a_wheel_compares_with_the_lock_that_it_brings(tmp_path):
    site = unpacked_wheel(tmp_path)
    command = [sys.executable, "-m", "robo_cli.main", "doctor", "--json"]
    done = subprocess.run(
        command, env=bare_environment(PYTHONPATH=str(site)), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    findings = json.loads(done.stdout)
    versions = next(finding for finding in findings if "default.txt, which was tested" in finding["text"])
    assert versions["level"] == "ok" or f"-r {site}/robo_app/machine/default.txt" in versions["fix"]
    assert (site / "robo_app/machine/default.txt").read_text() == (ROOT / "locks/default.txt").read_text()
    assert done.returncode == int(any(finding["level"] == "problem" for finding in findings))
    assert not [finding["fix"] for finding in findings if "scripts/setup" in (finding["fix"] or "")]


def test_wheel_compares_the_optional_packages_that_it_has(packages, tmp_path, monkeypatch):
    lock = tmp_path / "default.txt"
    lock.write_text("needed==1.0\noptional==1.0\n")
    monkeypatch.setattr(package_checks, "LOCK", lock)
    monkeypatch.setattr(package_checks, "IS_CHECKOUT", False)
    packages("needed", "1.0")
    assert texts(package_checks.locked_versions) == ["ok: all 1 packages are as in default.txt, which was tested -> None"]


def test_differences_from_the_lock_are_listed(packages, tmp_path, monkeypatch):
    lock = tmp_path / "lock.txt"
    lock.write_text("# heading\nsame==1.0   # why\nother==1.0\nabsent==1.0\nunused==1.0 ; python_version < '3'\n")
    monkeypatch.setattr(package_checks, "LOCK", lock)
    packages("same", "1.0")
    packages("other", "2.0")
    assert texts(package_checks.locked_versions) == [
        "warning: 2 of 3 packages differ from lock.txt, which was tested:"
        f" other 2.0 (lock: 1.0), absent missing (lock: 1.0) -> {LOCK_LINE}"
    ]
    lock.write_text("same==1.0\n")
    assert texts(package_checks.locked_versions) == ["ok: all 1 packages are as in lock.txt, which was tested -> None"]


def test_without_a_renderer_it_says_why_and_what_to_install(monkeypatch):
    monkeypatch.setattr(opengl, "REQUESTED", None)
    monkeypatch.setattr(machine_checks, "probe", lambda backend: f"lib{backend} is missing")
    assert texts(machine_checks.rendering) == [
        "problem: cannot draw frames without a display; egl: libegl is missing; osmesa: libosmesa is missing"
        " -> sudo apt-get install -y libegl1 libgl1 libgles2 libosmesa6 libgl1-mesa-dri"
    ]


@pytest.mark.parametrize(
    ("value", "working", "finding"),
    [
        ("egl", {None, "egl"}, "ok: draws frames with MUJOCO_GL=egl -> None"),
        ("osmesa", {"egl"}, "problem: MUJOCO_GL=osmesa cannot draw frames: no library -> unset MUJOCO_GL (egl works)"),
        ("what", set(), "problem: MUJOCO_GL=what cannot draw frames: no library -> sudo " + opengl.INSTALL),
        ("off", {"egl"}, "warning: MUJOCO_GL=off switches drawing off -> unset MUJOCO_GL"),
    ],
)
def test_doctor_looks_at_the_renderer_that_is_set(monkeypatch, value, working, finding):
    monkeypatch.setattr(opengl, "REQUESTED", value)
    monkeypatch.setattr(machine_checks, "probe", lambda backend: None if backend in working else "no library")
    assert texts(machine_checks.rendering) == [finding]


def test_the_second_renderer_is_enough(monkeypatch):
    monkeypatch.setattr(opengl, "REQUESTED", None)
    monkeypatch.setattr(machine_checks, "probe", {"egl": "no device", "osmesa": None}.get)
    assert texts(machine_checks.rendering) == ["ok: draws frames without a display, with osmesa -> None"]


def test_more_threads_than_a_container_allows_are_a_warning(tmp_path, monkeypatch):
    quota = tmp_path / "cpu.max"
    quota.write_text("150000 100000\n")
    monkeypatch.setattr(machine_checks, "CPU_QUOTA", quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 64)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert machine_checks.usable_cores() == 1.5
    assert texts(machine_checks.threads) == [
        "warning: torch uses 64 threads on 1.5 usable cores, OMP_NUM_THREADS unset: threads wait for each other"
        " -> export OMP_NUM_THREADS=1"
    ]
    quota.write_text("max 100000\n")
    assert machine_checks.usable_cores() == 64


def test_a_cpu_torch_beside_a_driver_is_a_warning(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/nvidia-smi")
    (found,) = texts(machine_checks.accelerator)
    assert found.startswith("warning: ") and found.endswith('-> ROBO_RL_TORCH="torch==2.13.0" scripts/setup')


@pytest.mark.parametrize(("free", "level"), [(0.2, "problem"), (5.0, "warning"), (80.0, "ok")])
def test_a_full_disk_is_told_before_it_is_full(monkeypatch, tmp_path, free, level):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free * 1e9))
    (found,) = machine_checks.disk(tmp_path / "not" / "made" / "yet")
    assert found.level == level and str(tmp_path) in found.text


def test_doctor_writes_to_runs_folder_and_cleans_up(tmp_path):
    (found,) = machine_checks.durable_writes(tmp_path)
    assert found == Finding("ok", f"checkpoints can be written to {tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_runs_folder_without_rename_is_a_problem(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "rename", refuse)
    (found,) = machine_checks.durable_writes(tmp_path)
    assert found.level == "problem"
    assert found.text == f"checkpoints cannot be written to {tmp_path}: [Errno 95] Operation not supported"
    assert found.fix is not None and "--out" in found.fix


def checks(*findings: Finding):
    return property(lambda _: {"given": lambda: iter(findings)})


def test_the_exit_code_and_the_text(monkeypatch, capsys):
    monkeypatch.setattr(Doctor, "checks", checks(Finding("ok", "fine"), Finding("warning", "slow [x]", "do this")))
    assert doctor.run(Doctor()) == 0
    assert capsys.readouterr().out == "ok       fine\nwarning  slow [x]\n         do: do this\n"
    monkeypatch.setattr(Doctor, "checks", checks(Finding("problem", "broken", "mend")))
    assert doctor.run(Doctor()) == 1


def test_json_is_one_list(monkeypatch, capsys):
    monkeypatch.setattr(Doctor, "checks", checks(Finding("problem", "broken", "mend")))
    assert doctor.run(Doctor(json=True)) == 1
    assert json.loads(capsys.readouterr().out) == [{"level": "problem", "text": "broken", "fix": "mend"}]


def test_a_check_that_fails_is_itself_a_finding(monkeypatch, capsys):
    def broken():
        raise OSError("libtorch.so: cannot open")

    monkeypatch.setattr(Doctor, "checks", property(lambda _: {"threads": broken}))
    assert doctor.run(Doctor()) == 1
    assert "problem  the check 'threads' failed: OSError: libtorch.so: cannot open" in capsys.readouterr().out


@pytest.mark.slow
def test_every_check_runs_on_this_machine(tmp_path):
    findings = [finding for check in Doctor(out=tmp_path).checks.values() for finding in check()]
    assert len(findings) >= 7
    assert all(finding.fix for finding in findings if finding.level != "ok")


def test_doctor_names_missing_sandbox_package(monkeypatch):
    assert texts(machine_checks.sandbox) == ["ok: reward programs run in a sandbox with seccomp -> None"]

    def missing() -> bytes:
        raise SandboxUnavailable("System calls cannot be filtered here.", got="no libseccomp")

    monkeypatch.setattr(machine_checks, "filter_program", missing)
    assert texts(machine_checks.sandbox) == [
        "warning: reward programs do not run here: System calls cannot be filtered here. got: no libseccomp"
        " -> sudo apt-get install -y libseccomp2; pip install pyseccomp"
    ]
