"""A policy that sees in the simulation runs on the twin through its cameras: the same spec, the same pictures."""

import threading

import numpy as np
import pytest

from robo_real.clock import ManualClock
from robo_real.environment import RobotEnv
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.twin import Twin, TwinOptions
from robo_rl.environments.make import make_environment
from robo_rl.errors import UnknownName
from robo_sims.arm.realtime_arm import RealtimeCameras


def twin_env(**options):
    """Returns the environment of a guarded twin in this process, on a manual clock."""
    twin = Twin(TwinOptions(task="robo/ArmPick-v0", image_size=32, **options), ManualClock())
    return RobotEnv(GuardedArm(twin, TWIN, spec=twin.spec, scene=twin), twin, action_repeat=3)


@pytest.mark.parametrize("sees", ["front", "wrist", "both"])
def test_twin_has_spec_of_seeing_task(sees):
    simulated = make_environment("robo/ArmPick-v0", sees=sees, image_size=32, action_repeat=3).environment_spec
    assert twin_env(sees=sees).environment_spec.fingerprint == simulated.fingerprint
    hidden = [array.name for array in simulated.observation.arrays if array.role == "privileged"]
    assert "object_position" in hidden


def test_twin_refuses_unknown_sees():
    with pytest.raises(UnknownName, match="both"):
        twin_env(sees="left")


def test_twin_without_own_cameras_adds_those_seen():
    twin = twin_env(sees="wrist", cameras=("front",)).robot.driver
    assert twin.cameras == ("camera_wrist", "camera_front")


@pytest.mark.slow
def test_twin_pictures_equal_those_of_simulation(serve_in_step, beside):
    simulated = make_environment("robo/ArmPick-v0", sees="both", image_size=32)
    environment = beside(serve_in_step(task="robo/ArmPick-v0", sees="both", image_size=32))
    seen, _ = environment.reset(seed=3)
    expected, _ = simulated.reset(seed=3)
    for name in ("camera_front", "camera_wrist"):
        np.testing.assert_array_equal(seen[name], expected[name])
    assert set(seen) == set(expected)
    assert environment.metrics["robot/picture_age_p99_ms"] == 0.0  # on this clock drawing takes no time
    environment.close()
    simulated.close()


@pytest.mark.slow
def test_frozen_camera_at_a_reset_is_waited_for(monkeypatch):
    twin = Twin(TwinOptions(task="robo/ArmPick-v0", cameras=("front",), image_size=32))
    twin.connect()
    twin.newest("camera_front")
    thawed, draw = threading.Event(), RealtimeCameras.draw
    monkeypatch.setattr(RealtimeCameras, "draw", lambda cameras: thawed.wait(20) and draw(cameras))
    thaw = threading.Timer(0.3, thawed.set)
    thaw.start()
    twin.reset(3)
    assert thawed.is_set() and twin.newest("camera_front").stamp >= twin._began
    thaw.join()
    twin.close()
