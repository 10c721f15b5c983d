"""Routes under /robo/ of a robot's server: lease, guard, spec, stamped observations, scene."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from robo_real.arm_spec import plain_numbers
from robo_real.cameras import Camera, Frame
from robo_real.guarded_arm import GuardedArm
from robo_real.server.lease import Lease
from robo_rl.errors import InvalidSetting, UnknownName

PROTOCOL = 1
"""Version of these routes, which every incompatible change increases"""
SEEDS = 1 << 63
"""exclusive upper bound of the seeds of a scene"""
Body = Mapping[str, Any]
Answer = dict[str, Any]


class RoboRoutes:
    """Handlers of the routes under /robo/, for one robot. `Application` calls them.

    Motions, tares and judging an action need the lease. Reading, stopping and re-arming need none.
    """

    def __init__(self, robot: GuardedArm, cameras: Mapping[str, Camera]) -> None:
        self._robot, self._cameras = robot, cameras
        self.lease = Lease()
        self.reads: Mapping[str, Callable[[], Answer]] = {
            "/robo/version": self._version,
            "/robo/health": self._health,
            "/robo/state": self._state,
            "/robo/spec": robot.spec.to_json,
            "/robo/limits": lambda: asdict(robot.limits),
            "/robo/log": lambda: {"events": [*robot.log.recent]},
        }
        self.writes: Mapping[str, Callable[[Body], Answer]] = {
            "/robo/lease": self._take,
            "/robo/release": self._release,
            "/robo/arm": self._leased(lambda _: robot.arm()),
            "/robo/observe": self._observe,
            "/robo/apply": self._apply,
            "/robo/judge": self._judge,
            "/robo/pause": self._leased(lambda _: robot.pause()),
            "/robo/enable": self._leased(lambda _: robot.guard.enable(robot.driver.clock.now())),
            "/robo/tare": self._tare,
            "/robo/stop": self._stop,
            "/robo/rearm": self._rearm,
            "/robo/scene/reset": self._leased(self._reset_scene),
        }

    def frame(self, name: str) -> Frame:
        """Return the newest picture of a camera; raises UnknownName, or CameraFault if the camera fails."""
        if name not in self._cameras:
            raise UnknownName("camera of this robot", name, self._cameras)
        return self._cameras[name].newest()

    def _version(self) -> Answer:
        robot = self._robot
        return {
            "protocol": PROTOCOL,
            "robot": robot.spec.name,
            "speed": getattr(robot.driver.clock, "speed", 1.0),
            "simulated": getattr(robot.driver, "is_simulated", False),
        }

    def _health(self) -> Answer:
        guard = self._robot.guard
        return {
            "mode": guard.mode,
            "reason": guard.reason,
            "stops": guard.stops,
            "owner": self.lease.owner,
            "counts": dict(guard.counts),
            "now": self._robot.driver.clock.now(),
            "skipped": getattr(self._robot.driver, "skipped", 0),
            "cameras": sorted(self._cameras),
        }

    def _state(self) -> Answer:
        """Return pose, force, torque and gripper opening for display; a value that is not finite is None."""
        state = self._robot.read()
        vectors = {name: getattr(state, name) for name in ("position", "quaternion", "force", "torque")}
        shown: Answer = {name: [_number(value) for value in vector] for name, vector in vectors.items()}
        return shown | {"stamp": _number(state.stamp), "opening": _number(state.opening)}

    def _take(self, body: Body) -> Answer:
        owner = str(body["owner"])[:200]
        token = self.lease.take(owner, str(body.get("key", "")))
        self._robot.log.add("lease", owner=owner)
        self._robot.pause()
        return {"lease": token, **self._version()}

    def _release(self, body: Body) -> Answer:
        self.lease.require(str(body["lease"]))
        self._robot.pause()
        self.lease.release(str(body["lease"]))
        return {}

    def _leased(self, work: Callable[[Body], object]) -> Callable[[Body], Answer]:
        def answer(body: Body) -> Answer:
            self.lease.require(str(body.get("lease", "")))
            work(body)
            return {"mode": self._robot.guard.mode}

        return answer

    def _observe(self, body: Body) -> Answer:
        if "lease" in body:
            self.lease.require(str(body["lease"]))
        state = self._robot.driver.read()
        observation = self._robot.observation(state)
        guard = self._robot.guard
        return {
            "stamp": state.stamp,
            "observation": {name: np.asarray(value).tolist() for name, value in observation.items()},
            "success": self._robot.scene.success() if self._robot.scene else None,
            "mode": guard.mode,
            "reason": guard.reason,
        }

    def _apply(self, body: Body) -> Answer:
        self.lease.require(str(body.get("lease", "")))
        executed = self._robot.apply(body["action"], answers=float(plain_numbers(body["answers"])))
        return {"executed": executed.action.tolist(), "reasons": executed.reasons, "mode": self._robot.guard.mode}

    def _judge(self, body: Body) -> Answer:
        self.lease.require(str(body.get("lease", "")))
        judged = self._robot.judge(body["action"], answers=float(plain_numbers(body["answers"])))
        return {"executed": judged.action.tolist(), "reasons": judged.reasons}

    def _tare(self, body: Body) -> Answer:
        self.lease.require(str(body.get("lease", "")))
        return self._robot.tare().to_json()

    def _stop(self, body: Body) -> Answer:
        self._robot.stop(f"stop: {str(body.get('by', 'a client'))[:200]}")
        return self._health()

    def _rearm(self, body: Body) -> Answer:
        stops = body.get("stops")
        if type(stops) is not int:
            raise InvalidSetting(
                "Re-arming must name the number of stops and faults that were seen: a later one stays.",
                got=stops,
                allowed="the integer stops of /robo/health",
                fix="robo-rl robot rearm URL, or GET /robo/health, look at the robot, and send its stops",
            )
        self._robot.log.add("rearm", by=str(body["by"])[:100], stops=stops)
        self._robot.rearm(stops)
        return self._health()

    def _reset_scene(self, body: Body) -> None:
        if self._robot.scene is None:
            raise InvalidSetting("This robot has no scene that can be reset.", fix="reset it by hand")
        seed = body["seed"]
        if type(seed) is not int or not 0 <= seed < SEEDS:
            raise InvalidSetting("The seed of a scene is out of range.", got=seed, allowed=f"integers from 0 to {SEEDS - 1}")
        self._robot.reset_scene(seed)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
