"""A third party adds an environment without touching a file of ours, and is found by name."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import textwrap

import pytest
from gymnasium.vector import AutoresetMode

from robo_rl.conformance.environments import check_environment
from robo_rl.conformance.vector import check_vector_environment
from robo_rl.entry_points import known, load
from robo_rl.environments.make import environment_names, make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting, MissingExtra, UnknownName

PACKAGE = '''
    import gymnasium
    import numpy as np

    from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec


    class Slider(gymnasium.Env):
        """A body on a rail that is pushed to its middle."""

        def __init__(self, mass=1.0, render_mode=None):
            self.mass = mass
            self.render_mode = render_mode
            self.environment_spec = EnvironmentSpec(
                "slider",
                ObservationSpec((ArraySpec("motion", (2,), low=-100.0, high=100.0, unit="mixed", frame="world"),)),
                ActionSpec(("force",), (-1.0,), (1.0,), ("N",), "joint_torque", 0.1),
                max_steps=30,
            )
            self.observation_space = self.environment_spec.observation.space
            self.action_space = self.environment_spec.action.space

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.motion, self.steps = self.np_random.uniform(-1.0, 1.0, 2), 0
            return {"motion": self.motion.astype(np.float32)}, {}

        def step(self, action):
            force = self.environment_spec.action.to_physical(action)[0]
            self.motion = self.motion + 0.1 * np.array([self.motion[1], force / self.mass])
            self.steps += 1
            truncated = self.steps == 30
            info = {"stop_reason": "time_limit"} if truncated else {}
            return {"motion": self.motion.astype(np.float32)}, float(-abs(self.motion[0])), False, truncated, info


    class Family:
        def names(self):
            return ["light", "heavy"]

        def make(self, name, **arguments):
            return Slider(**{"mass": {"light": 0.5, "heavy": 5.0}[name], **arguments})


    FAMILY = Family()
'''
ENTRY_POINTS = """
    [robo_rl.environments]
    slider = third_party_slider:Slider
    sliders = third_party_slider:FAMILY
"""


@pytest.fixture
def third_party(tmp_path):
    """Writes an installed package as pip would leave it; returns the folder that is to be on the path."""
    (tmp_path / "third_party_slider.py").write_text(textwrap.dedent(PACKAGE))
    information = tmp_path / "third_party_slider-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party-slider\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    return tmp_path


@pytest.fixture
def on_path(third_party, monkeypatch):
    monkeypatch.syspath_prepend(third_party)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("third_party_slider", None)


def test_a_third_partys_environments_are_listed_and_made(on_path):
    names = environment_names()
    assert {name for name in names if name.startswith("slider")} == {"slider", "sliders/light", "sliders/heavy"}
    assert make_environment("slider", mass=2.0).mass == 2.0
    assert make_environment("sliders/heavy").mass == 5.0


def test_a_third_partys_environment_passes_the_suite_in_one_line(on_path):
    check_environment(lambda: make_environment("sliders/light"))


def test_plugin_environments_vectorise_without_batched_version(on_path):
    with contextlib.closing(
        make_vector_environment("sliders/heavy", 3, threads=2, autoreset_mode="SameStep", mass=2.0)
    ) as vector:
        assert [environment.mass for environment in vector.envs] == [2.0] * 3
        assert vector.environment_spec.name == "slider"
        assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    check_vector_environment("slider")


def test_a_third_partys_batched_version_is_preferred(on_path, monkeypatch):
    family = load("environments", "sliders")
    monkeypatch.setattr(type(family), "make_vector", lambda self, *a, **k: (a, sorted(k)), raising=False)
    assert make_vector_environment("sliders/light", 4) == (("light", 4), ["autoreset_mode", "threads"])


@pytest.mark.parametrize("num_envs", [0, 2.0])
def test_a_number_of_environments_that_makes_no_sense(num_envs):
    with pytest.raises(InvalidSetting, match="num_envs is out of range"):
        make_vector_environment("gymnasium/Hopper-v5", num_envs)


def test_an_autoreset_mode_that_does_not_exist():
    with pytest.raises(InvalidSetting, match=r"Unknown autoreset_mode.\n  got:     'Later'\n  allowed: .*'SameStep'"):
        make_vector_environment("gymnasium/Hopper-v5", 2, autoreset_mode="Later")


@pytest.mark.slow
def test_the_command_line_lists_a_third_partys_environment(third_party):
    done = subprocess.run(
        [sys.executable, "-m", "robo_cli.main", "envs", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        env={**os.environ, "PYTHONPATH": str(third_party)},
    )
    rows = {row["name"]: row["available"] for row in json.loads(done.stdout)}
    assert rows["sliders/heavy"] is True
    assert rows["slider"] is True
    assert rows["gymnasium/HalfCheetah-v5"] is True


def test_without_the_package_the_name_is_unknown():
    with pytest.raises(UnknownName) as caught:
        make_environment("sliders/heavy")
    assert str(caught.value).startswith("Unknown environment 'sliders/heavy'.")


def test_an_unknown_task_of_a_known_family_lists_close_matches(on_path):
    with pytest.raises(UnknownName) as caught:
        make_environment("sliders/heavi")
    assert "did you mean 'sliders/heavy'" in str(caught.value)
    assert "gymnasium/" not in str(caught.value), "other families are of no help"
    with pytest.raises(UnknownName):
        make_environment("sliders")


def test_importing_and_listing_entry_points_loads_no_simulator():
    code = (
        "import sys, robo_rl.entry_points as d; d.known('environments');"
        "print([m for m in ('mujoco', 'dm_control', 'metaworld', 'torch', 'minigrid') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_broken_family_is_explained_and_hides_no_other(on_path, monkeypatch):
    def missing(self):
        raise MissingExtra("Sliders", "rails", "sliders")

    monkeypatch.setattr(type(load("environments", "sliders")), "names", missing)
    names = environment_names()
    assert names["sliders/*"].startswith("Sliders needs the package 'rails', which is not installed.")
    assert names["slider"] is None
    assert names["gymnasium/Ant-v5"] is None
    with pytest.raises(MissingExtra, match="rails"):
        make_environment("sliders/heavy")


def test_a_family_whose_import_fails_hides_no_other(third_party, monkeypatch):
    (third_party / "third_party_slider.py").write_text("import rails_that_do_not_exist\n")
    monkeypatch.syspath_prepend(third_party)
    importlib.invalidate_caches()
    names = environment_names()
    assert "rails_that_do_not_exist" in names["sliders/*"]
    assert names["gymnasium/Ant-v5"] is None


def test_unknown_component_lists_close_matches():
    with pytest.raises(UnknownName) as caught:
        load("learners", "rlpdd")
    assert "Unknown learner 'rlpdd'." in str(caught.value)
    assert caught.value.close[0] == "rlpd"


def test_known_names_are_sorted():
    assert list(known("environments")) == sorted(known("environments"))
    assert {"robo", "gymnasium", "dm_control", "metaworld", "gymnasium_robotics", "minigrid"} <= set(known("environments"))


def test_a_package_installed_meanwhile_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "later" not in known("learners")
    package = tmp_path / "later-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[robo_rl.learners]\nlater = later:Config\n")
    assert known("learners")["later"].value == "later:Config"
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert "later" not in known("learners")
