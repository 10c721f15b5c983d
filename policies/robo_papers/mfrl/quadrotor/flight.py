"""Two fidelities of a flight: rotor thrusts by differential flatness, and MuJoCo with slow rotors, drag and a controller.

Mellinger and Kumar 2011, "Minimum snap trajectory generation and control for quadrotors", sections III and IV; Lee, Leok and
McClamroch 2010, "Geometric tracking control of a quadrotor UAV on SE(3)", arXiv:1003.2005. Yaw is 0 throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import numpy.typing as npt

from robo_papers.mfrl.quadrotor.plan import Trajectory

Array = npt.NDArray[np.float64]
GRAVITY = 9.81
"""[m/s^2] acceleration of gravity"""
WEIGHT = np.array([0.0, 0.0, GRAVITY])
"""(3,) [m/s^2] acceleration that the thrust must balance to hover."""
MASS = 0.8
"""[kg] mass of the quadrotor"""
INERTIA = np.array([0.005, 0.005, 0.009])
"""[kg m^2] moments of inertia about x, y, z of the body."""
ARM = 0.12
"""[m] distance from the middle to a rotor, along x and along y."""
YAW_RATIO = 0.016
"""[m] ratio of a rotor's torque about z to its thrust."""
THRUSTS = 0.2, 5.0
"""[N] lowest and highest thrust of a rotor; hovering takes 2."""
LAG = 0.04
"""[s] time constant of a rotor, only in the MuJoCo simulation."""
DRAG = 0.12
"""[N s/m] drag of the body, only in the MuJoCo simulation."""
STEP = 0.005
"""[s] time step of physics and controller."""
STRAYS = 0.06
"""[m] distance from the plan from which on a flight counts as failed."""
SETTLES = 0.5
"""[s] time for which a flight goes on after the plan's end."""

_SIGNS = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, -1.0, -1.0], [-1.0, 1.0, 1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])
MIXER = np.linalg.inv(_SIGNS * np.array([[1.0], [ARM], [ARM], [YAW_RATIO]]))
"""(4, 4) matrix from thrust [N] and torques [N m] to the rotors' thrusts [N]; rotors are at (+x +y), (-x +y), (-x -y), (+x
-y)."""

_PLACES = (ARM, ARM), (-ARM, ARM), (-ARM, -ARM), (ARM, -ARM)
XML = f"""<mujoco model="quadrotor">
  <option timestep="{STEP}" integrator="implicitfast"/>
  <statistic center="0 0 1.5" extent="4"/>
  <visual><headlight ambient="0.5 0.5 0.5" diffuse="0.4 0.4 0.4" specular="0 0 0"/></visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.97 0.98 0.99" rgb2="0.84 0.88 0.92" width="64" height="64"/>
  </asset>
  <worldbody>
    <light pos="2 -2 6" dir="-0.3 0.3 -1" directional="true" castshadow="false"/>
    <geom type="plane" size="8 8 0.1" rgba="0.86 0.88 0.86 1" contype="0" conaffinity="0"/>
    <camera name="overview" pos="6.5 -6.5 6" xyaxes="0.707 0.707 0 -0.42 0.42 0.80" fovy="45"/>
    <body name="quadrotor" pos="0 0 1">
      <freejoint/>
      <inertial pos="0 0 0" mass="{MASS}" diaginertia="{" ".join(map(str, INERTIA))}"/>
      <geom type="box" size="0.05 0.05 0.02" rgba="0.2 0.25 0.35 1" contype="0" conaffinity="0"/>
      {
    "".join(
        f'<geom type="capsule" fromto="0 0 0 {x} {y} 0" size="0.012" rgba="0.3 0.35 0.45 1" contype="0" conaffinity="0"/>'
        f'<geom type="cylinder" pos="{x} {y} 0.02" size="0.08 0.006" rgba="0.85 0.4 0.25 1" contype="0" conaffinity="0"/>'
        f'<site name="rotor{index}" pos="{x} {y} 0"/>'
        for index, (x, y) in enumerate(_PLACES)
    )
}
    </body>
  </worldbody>
  <actuator>
    {
    "".join(
        f'<general site="rotor{index}" gear="0 0 1 0 0 {YAW_RATIO * sign}" dyntype="filterexact" dynprm="{LAG}" '
        f'ctrllimited="true" ctrlrange="{THRUSTS[0]} {THRUSTS[1]}"/>'
        for index, sign in enumerate(_SIGNS[3])
    )
}
  </actuator>
</mujoco>"""
POSITION_GAIN, VELOCITY_GAIN = 16.0, 6.0
"""[1/s^2], [1/s] gains of the controller for errors of position and velocity"""
ATTITUDE_GAIN, RATE_GAIN = 250.0, 25.0
"""[1/s^2], [1/s] gains of the controller for errors of attitude and turning rate"""


def rotor_thrusts(trajectory: Trajectory, step: float = 0.02) -> Array:
    """Return the thrusts (N, 4) [N] that a trajectory needs of ideal rotors, one row every `step` [s]."""
    at = np.arange(0.0, trajectory.duration + step, step)
    force = trajectory.sample(at, 2) + WEIGHT
    thrust = np.linalg.norm(force, axis=1)
    frames = _frames(force / np.maximum(thrust, 1e-6)[:, None])
    jerk = trajectory.sample(at, 3) / np.maximum(thrust, 1e-6)[:, None]
    rates = np.stack([-np.vecdot(frames[:, :, 1], jerk), np.vecdot(frames[:, :, 0], jerk), np.zeros(len(at))], 1)
    # yaw 0 turns the body about its z axis, too: the heading's rate follows from the frames
    rates[:, 2] = np.vecdot(np.gradient(frames[:, :, 0], step, axis=0), frames[:, :, 1])
    torques = INERTIA * np.gradient(rates, step, axis=0) + np.cross(rates, INERTIA * rates)
    return np.asarray(np.column_stack([MASS * thrust, torques]) @ MIXER.T)


def is_within_limits(trajectory: Trajectory) -> bool:
    """Return True if ideal rotors can fly the trajectory within their limits (the low fidelity)."""
    thrusts = rotor_thrusts(trajectory)
    return bool(thrusts.min() >= THRUSTS[0] and thrusts.max() <= THRUSTS[1])


@dataclass(frozen=True)
class Flown:
    """Result of a flight in MuJoCo: path, largest error, success."""

    error: float
    """[m] largest distance from the plan at any time."""
    path: Array
    """(N, 3) [m] positions on the flight, one every STEP."""
    is_feasible: bool
    """True if the flight never strayed from the plan."""


class Quadrotor:
    """MuJoCo simulation of the quadrotor with a geometric controller, which flies plans (the high fidelity)."""

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string(XML)
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.data = mujoco.MjData(self.model)
        self.restart()

    def restart(self) -> None:
        """Put the quadrotor at rest at the start, hovering."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.act[:] = MASS * GRAVITY / 4
        mujoco.mj_forward(self.model, self.data)

    def fly(self, trajectory: Trajectory) -> Flown:
        """Fly a trajectory from rest at its start, until its end or until the flight strays from it."""
        model, data = self.model, self.data
        at = np.arange(0.0, trajectory.duration + SETTLES, STEP)
        wanted = [trajectory.sample(at, derivative) for derivative in range(4)]
        inside = at <= trajectory.duration
        for derivative in range(1, 4):
            wanted[derivative] *= inside[:, None]
        self.restart()
        data.qpos[:3] = wanted[0][0]
        path, error = np.empty((len(at), 3)), 0.0
        for index, (position, velocity, acceleration, jerk) in enumerate(zip(*wanted, strict=True)):
            error = max(error, float(np.linalg.norm(position - data.qpos[:3])))
            path[index] = data.qpos[:3]
            if not error <= STRAYS:  # also where it is not a number
                return Flown(error, path[: index + 1], False)
            data.ctrl[:] = self._thrusts(position, velocity, acceleration, jerk)
            data.qfrc_applied[:3] = -DRAG * data.qvel[:3]
            mujoco.mj_step(model, data)
        return Flown(error, path, True)

    def _thrusts(self, position: Array, velocity: Array, acceleration: Array, jerk: Array) -> Array:
        """Return the thrusts (4,) [N] that the controller commands."""
        data = self.data
        turn = np.empty(9)
        mujoco.mju_quat2Mat(turn, data.qpos[3:7])
        frame, rates = turn.reshape(3, 3), data.qvel[3:6]
        force = POSITION_GAIN * (position - data.qpos[:3]) + VELOCITY_GAIN * (velocity - data.qvel[:3]) + acceleration
        force[2] += GRAVITY
        size = max(float(np.linalg.norm(force)), 1e-6)
        wanted = _frames(force[None] / size)[0]
        hurry = jerk / size
        wanted_rates = frame.T @ wanted @ np.array([-wanted[:, 1] @ hurry, wanted[:, 0] @ hurry, 0.0])
        skew = wanted.T @ frame - frame.T @ wanted
        error = 0.5 * np.array([skew[2, 1], skew[0, 2], skew[1, 0]])
        gyroscopic = rates[[1, 2, 0]] * (INERTIA * rates)[[2, 0, 1]] - rates[[2, 0, 1]] * (INERTIA * rates)[[1, 2, 0]]
        torques = INERTIA * (-ATTITUDE_GAIN * error - RATE_GAIN * (rates - wanted_rates)) + gyroscopic
        thrusts: Array = MIXER @ np.array([MASS * force @ frame[:, 2], *torques])
        return thrusts


def _frames(up: Array) -> Array:
    """Return rotations (N, 3, 3) of a body whose z axis is `up` (N, 3) and whose heading is 0."""
    x, y, z = up.T
    size = np.maximum(np.hypot(y, z), 1e-9)
    frames = np.empty((len(up), 3, 3))
    frames[:, :, 2] = up
    frames[:, :, 1] = np.stack([np.zeros_like(x), z / size, -y / size], 1)  # up x (1, 0, 0)
    frames[:, :, 0] = np.stack([size, -x * y / size, -x * z / size], 1)  # left x up
    return frames
