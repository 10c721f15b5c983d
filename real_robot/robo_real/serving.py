"""Puts a served robot together: driver, limits, guard, cameras, server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robo_real.arm import Scene
from robo_real.arm_spec import arm_spec
from robo_real.audit_log import FILES, LARGEST, AuditLog
from robo_real.cameras import Camera, Frame, OpenCVCamera
from robo_real.guarded import GuardedArm
from robo_real.limits import Limits, limits_from
from robo_real.server.application import ADDRESS, Application, RobotServer
from robo_real.twin import Twin
from robo_rl.environments.discovery import load
from robo_rl.errors import InvalidSetting
from robo_rl.settings import settings_as
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec


@dataclass(frozen=True)
class Serving:
    """Settings of a robot's server."""

    driver: str = "twin"
    """a name of the entry points robo_rl.robots"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """of the driver, such as task and speed of the twin, or url of franka-http"""
    limits: Path | None = None
    """a YAML file; only simulated robots have limits of their own"""
    cameras: Mapping[str, int | str] = field(default_factory=dict)
    """name -> number or path of an OpenCV device"""
    image_size: int = 128
    """[pixel] height and width of their pictures"""
    address: str = ADDRESS
    port: int = 5000
    """0 takes a free one"""
    log: Path | None = None
    """the audit log"""
    log_bytes: int = LARGEST
    """of one of its files"""
    log_files: int = FILES
    """that are kept"""
    plain_clients: bool | None = None
    """whether clients without a lease may move it; None allows it to simulated robots only"""
    auto_clear: bool = False
    """whether /clearerr also ends a stop that came from the robot's own error"""
    allow_joint_reset: bool = False
    """whether /jointreset may be forwarded to a robot whose own server moves the joints, outside the limits"""


def served(serving: Serving) -> RobotServer:
    """Returns a server that is ready to start; raises InvalidSetting if limits are missing, RobotUnavailable."""
    kind = load("robots", serving.driver)
    driver = kind(settings_as(kind.options, dict(serving.options), source=f"options of {serving.driver}"))
    limits = _limits(serving, kind)
    scene: Scene | None = driver if isinstance(driver, Twin) else None
    spec = getattr(driver, "spec", None) or arm_spec(driver.name, len(limits.joint_low))
    log = AuditLog(serving.log, largest=serving.log_bytes, files=serving.log_files)
    robot = GuardedArm(driver, limits, scene=scene, spec=_with_cameras(spec, serving), log=log)
    cameras: dict[str, Camera] = {}
    try:
        robot.connect()
        for name, device in serving.cameras.items():
            cameras[f"camera_{name}"] = OpenCVCamera(device, serving.image_size, driver.clock.now)
        if isinstance(driver, Twin):
            cameras |= {name: TwinCamera(driver, name) for name in driver.cameras}
        is_open = getattr(kind, "is_simulated", False) if serving.plain_clients is None else serving.plain_clients
        application = Application(
            robot,
            cameras,
            plain_clients=is_open,
            auto_clear=serving.auto_clear,
            allow_joint_reset=serving.allow_joint_reset,
        )
        return RobotServer(application, address=serving.address, port=serving.port)
    except BaseException:
        robot.close()
        for camera in cameras.values():
            camera.close()
        raise


@dataclass
class TwinCamera:
    """A camera that the twin draws."""

    twin: Twin
    name: str

    def newest(self) -> Frame:
        """Returns the newest picture."""
        return self.twin.newest(self.name)

    def close(self) -> None:
        """The twin closes it."""


def _limits(serving: Serving, kind: Any) -> Limits:
    if serving.limits is not None:
        return limits_from(serving.limits)
    own: Limits | None = getattr(kind, "limits", None)
    if own is None:
        raise InvalidSetting(
            f"No limits are given for {serving.driver}.",
            got="none",
            allowed="a YAML file with every limit, finite",
            fix="--limits FILE; docs/robot-guard.md has one to start from",
        )
    return own


def _with_cameras(spec: EnvironmentSpec, serving: Serving) -> EnvironmentSpec:
    shape = (serving.image_size, serving.image_size, 3)
    arrays = tuple(ArraySpec(f"camera_{name}", shape, "uint8", 0, 255, role="image") for name in serving.cameras)
    return replace(spec, observation=ObservationSpec((*spec.observation.arrays, *arrays))) if arrays else spec
