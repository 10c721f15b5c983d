"""Checks of `robo-rl doctor` on installed packages; they read metadata only, so that a broken package cannot hide itself."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from robo_app.machine.finding import Finding

SHIPPED = Path(__file__).with_name("default.txt")
"""Copy of locks/default.txt in an installed wheel."""
IS_CHECKOUT = not SHIPPED.exists()
LOCK = Path(__file__).parents[3] / "locks" / "default.txt" if IS_CHECKOUT else SHIPPED
"""File with the versions of all packages with which the tests ran."""
INSTALL_LOCK = f"pip install --no-deps -r {shlex.quote(str(LOCK))}"
FAILS_FROM_MUJOCO = {"gymnasium-robotics": (3, 12), "metaworld": (3, 17)}  # measured with 1.4.2 and 3.1.1
OWN_THE_SAME_FOLDER = {  # import folder -> wheels, the one to keep first
    "cv2": ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python"),
    "pygame": ("pygame-ce", "pygame"),
}


def python() -> Iterator[Finding]:
    """Report version and folder of the Python interpreter; a wrong one is the most common cause of trouble."""
    yield Finding("ok", f"Python {platform.python_version()} in {sys.prefix}")


def locked_versions() -> Iterator[Finding]:
    """Check that the installed versions are those with which the tests ran; in a wheel optional packages may be missing."""
    lines = [line.partition("#")[0].strip() for line in LOCK.read_text(encoding="utf-8").splitlines()]
    pins = [line.split("==") for line in lines if "==" in line and ";" not in line]
    found = [(name, installed(name), pin) for name, pin in pins if IS_CHECKOUT or installed(name)]
    others = [f"{name} {version or 'missing'} (lock: {pin})" for name, version, pin in found if version != pin]
    if others:
        text = f"{len(others)} of {len(found)} packages differ from {LOCK.name}, which was tested: {', '.join(others)}"
        yield Finding("warning", text, INSTALL_LOCK)
    else:
        yield Finding("ok", f"all {len(found)} packages are as in {LOCK.name}, which was tested")


def mujoco() -> Iterator[Finding]:
    """Check that MuJoCo has a supported version, and that packages which depend on its exact version fit."""
    version = installed("mujoco")
    if version is None:
        yield Finding("problem", "mujoco is not installed", INSTALL_LOCK)
    elif series(version) >= (4, 0):
        fix = f"pip uninstall -y mujoco mujoco-core mujoco-studio; {INSTALL_LOCK}"
        yield Finding("problem", f"mujoco {version} is installed; the simulators here need mujoco 3", fix)
    else:
        yield Finding("ok", f"mujoco {version}")
        yield from _followers(version)


def _followers(mujoco_version: str) -> Iterator[Finding]:
    made_for = wanted_mujoco("dm-control")
    if made_for and series(made_for) != series(mujoco_version):
        text = f"dm_control {installed('dm-control')} goes with mujoco {made_for}, not {mujoco_version}"
        yield Finding("problem", text, INSTALL_LOCK)
    for name, broken in FAILS_FROM_MUJOCO.items():
        if installed(name) and series(mujoco_version) >= broken:
            text = f"{name} {installed(name)} fails from mujoco {broken[0]}.{broken[1]} on; {mujoco_version} is installed"
            yield Finding("problem", text, f"{INSTALL_LOCK}; or do without it: pip uninstall -y {name}")


def double_wheels() -> Iterator[Finding]:
    """Check that no two installed wheels write the same import folder, in which the one installed last would win."""
    for folder, wheels in OWN_THE_SAME_FOLDER.items():
        found = [name for name in wheels if installed(name)]
        if len(found) > 1:
            pin = f"{found[0]}=={installed(found[0])}"
            fix = f"pip uninstall -y {' '.join(found)}; pip install --no-deps {pin}"
            yield Finding("problem", f"{' and '.join(found)} are both installed and share the folder {folder}", fix)


def installed(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def wanted_mujoco(name: str) -> str | None:
    """Return the lowest mujoco that an installed distribution requires, or None."""
    needs = (metadata.requires(name) or []) if installed(name) else []
    floors = [re.search(r">=\s*([\d.]+)", need) for need in needs if re.match(r"mujoco\b(?!-)", need)]
    return next((floor[1] for floor in floors if floor), None)


def series(version: str) -> tuple[int, int]:
    """Return major and minor number of a version."""
    major, minor, *_ = [int(number) for number in re.findall(r"\d+", version)] + [0, 0]
    return major, minor
