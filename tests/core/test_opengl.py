"""MuJoCo reads MUJOCO_GL once, at its first import: whichever module of ours imports it chooses the back end before."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import robo_rl
from factories import bare_environment

ROOT = Path(robo_rl.__file__).parents[1]
PACKAGES = ("robo_rl", "sims/robo_sims", "policies/robo_policies", "real_robot/robo_real", "datasets/robo_datasets")
PACKAGES += ("scripts/robo_app", "scripts/robo_cli", "scripts/robo_bench")
IMPORT = re.compile(r"^(?:import|from) (?:mujoco|dm_control|gymnasium_robotics|metaworld)\b", re.MULTILINE)
EACH_FIRST = """
import importlib, sys
from robo_rl.system import opengl
chosen = []
opengl.prefer_headless = lambda: chosen.append(True)

class Import(Exception): ...
class First:
    def find_spec(self, name, path, target=None):
        if name == "mujoco":
            raise Import

sys.meta_path.insert(0, First())
late = []
for name in sys.argv[1:]:
    for loaded in [*sys.modules]:
        if loaded.startswith("robo_") and not loaded.startswith("robo_rl"):
            del sys.modules[loaded]
    chosen.clear()
    try:
        importlib.import_module(name)
    except Import:
        late += [] if chosen else [name]
print(*late)
"""


def modules_with_mujoco() -> list[str]:
    """Return the modules of the product that import MuJoCo, or a package that does, when they are imported."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if IMPORT.search(path.read_text())]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in files]
    return [".".join(part for part in names[names.index(_package(names)) :] if part != "__init__") for names in parts]


def _package(names: tuple[str, ...]) -> str:
    return next(name for name in names if name.startswith("robo_"))


@pytest.mark.slow
def test_back_end_is_chosen_before_mujoco_is_imported() -> None:
    modules = modules_with_mujoco()
    assert {"robo_app.playback.window", "robo_rl.kinematics", "robo_sims.simulation"} <= {*modules}
    command = [sys.executable, "-c", EACH_FIRST, *modules]
    assert subprocess.check_output(command, text=True, env=bare_environment()).strip() == ""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["robo_app.playback.window", "robo_rl.kinematics"])
def test_process_that_imports_it_first_draws(first: str) -> None:
    program = f"""
import {first}, mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(data)
    print(renderer.render().max() > 0)
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True, env=bare_environment()) == "True\n"
