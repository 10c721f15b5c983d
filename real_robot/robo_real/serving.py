"""Assembly of a served robot from its settings: driver, limits, guard, cameras and server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from robo_real.arm import Scene
from robo_real.arm_spec import arm_spec
from robo_real.audit_log import FILES, LARGEST, AuditLog
from robo_real.camera_process import CameraOptions, CameraProcess
from robo_real.cameras import Camera, Frame, ImagingDriver
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import Limits, limits_from
from robo_real.server.application import ADDRESS, Application, RobotServer
from robo_real.twin import Twin
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting
from robo_rl.settings import settings_as
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec


@dataclass(frozen=True)
class ServerSettings:
    """Settings of `robo-rl robot serve`: driver, limits, cameras and address."""

    driver: str = "twin"
    """driver: name of an entry point in robo_rl.robots"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """options of the driver, such as task and speed of the twin, or url of franka-http"""
    limits: Path | None = None
    """YAML file with the limits; None is allowed for simulated robots only, which have limits of their own"""
    cameras: Mapping[str, Any] = field(default_factory=dict)
    """name of a camera -> number or path of an OpenCV device, or a mapping of CameraSettings and the options of its kind"""
    image_size: int = 128
    """[pixel] height and width of the pictures of cameras that set no size of their own"""
    address: str = ADDRESS
    """address at which the server listens; by default only this machine can reach it"""
    port: int = 5000
    """port of the server; 0 chooses a free one"""
    log: Path | None = None
    """path of the audit log; None for a log in memory"""
    log_bytes: int = LARGEST
    """[byte] largest size of one file of the audit log"""
    log_files: int = FILES
    """number of files of the audit log that are kept, 2 or more"""
    plain_clients: bool | None = None
    """True to allow motion by clients without a lease; None allows it for simulated robots only"""
    auto_clear: bool = False
    """True to let /clearerr also clear a stop that the robot's own error has caused"""
    allow_joint_reset: bool = False
    """True to forward /jointreset to a robot whose own server moves the joints; no limit of the guard holds for that motion"""


def build_server(settings: ServerSettings) -> RobotServer:
    """Connect to the robot and its cameras, and return their server, ready to start.

    Raises:
        InvalidSetting: Limits are missing, or a setting is impossible.
        UnknownName: There is no such driver, camera or setting.
        RobotUnavailable: The robot does not answer.
        CameraFault: A camera gives no picture.
    """
    kind = load("robots", settings.driver)
    driver = kind(settings_as(kind.options, dict(settings.options), source=f"options of {settings.driver}"))
    limits = _limits(settings, driver)
    scene: Scene | None = driver if isinstance(driver, Twin) else None
    spec = getattr(driver, "spec", None) or arm_spec(driver.name, len(limits.joint_low))
    _require_joints(spec, limits)
    options = {name: CameraOptions.of(name, given, settings.image_size) for name, given in settings.cameras.items()}
    log = AuditLog(settings.log, largest=settings.log_bytes, files=settings.log_files)
    robot = GuardedArm(driver, limits, scene=scene, spec=_with_cameras(spec, options), log=log)
    cameras: dict[str, Camera] = {}

    def log_fault(name: str, text: str) -> None:
        log.add("camera_fault", camera=name, text=text)

    try:
        robot.connect()
        for name, of_camera in options.items():
            cameras[f"camera_{name}"] = CameraProcess(name, of_camera, driver.clock, log_fault)
        cameras |= {name: DriverCamera(driver, name) for name in getattr(driver, "cameras", ())}
        is_open = getattr(kind, "is_simulated", False) if settings.plain_clients is None else settings.plain_clients
        application = Application(
            robot,
            cameras,
            plain_clients=is_open,
            auto_clear=settings.auto_clear,
            allow_joint_reset=settings.allow_joint_reset,
        )
        return RobotServer(application, address=settings.address, port=settings.port)
    except BaseException:
        robot.close()
        for camera in cameras.values():
            camera.close()
        raise


@dataclass
class DriverCamera(Camera):
    """Camera whose pictures come from the robot's own driver."""

    driver: ImagingDriver
    name: str
    """name of the camera in the observation"""

    @override
    def newest(self) -> Frame:
        return self.driver.newest(self.name)

    @override
    def close(self) -> None:
        """Do nothing: the driver closes it."""


def _require_joints(spec: EnvironmentSpec, limits: Limits) -> None:
    joints = spec.observation["joint_position"].shape[0] if "joint_position" in spec.observation else len(limits.joint_low)
    if joints != len(limits.joint_low):
        raise InvalidSetting(
            "The limits are those of an arm with other joints.",
            got=f"{len(limits.joint_low)} joint limits",
            allowed=f"{joints}, the joints of {spec.name}",
        )


def _limits(settings: ServerSettings, driver: Any) -> Limits:
    if settings.limits is not None:
        return limits_from(settings.limits)
    own: Limits | None = getattr(driver, "limits", None)
    if own is None:
        raise InvalidSetting(
            f"No limits are given for {settings.driver}.",
            got="none",
            allowed="a YAML file with every limit, finite",
            fix="--limits FILE; docs/robots/robot-guard.md has one to start from",
        )
    return own


def _with_cameras(spec: EnvironmentSpec, cameras: Mapping[str, CameraOptions]) -> EnvironmentSpec:
    arrays = tuple(
        ArraySpec(f"camera_{name}", (options.common.image_size,) * 2 + (3,), "uint8", 0, 255, role="image")
        for name, options in cameras.items()
    )
    return replace(spec, observation=ObservationSpec((*spec.observation.arrays, *arrays))) if arrays else spec
