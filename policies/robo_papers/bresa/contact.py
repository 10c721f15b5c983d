"""Contact tasks at 200 Hz whose action includes a stiffness: a mass before a hidden wall, an arm that wipes a hidden board.

An impedance controller pulls the hand to a moving target by a spring: F = K e - D v, with e from the hand to the target, v the
hand's velocity, D = 2 zeta sqrt(K m) (Hogan 1985, "Impedance control: an approach to manipulation", part I). An action is the
velocity of the target and the stiffness K, in force for one period; the controller runs twice in it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import cv2
import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.measures import Measure
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec
from robo_sims.arm.inverse_kinematics import pointing_down, solve
from robo_sims.arm.physics import JOINTS, NOMINAL_POSTURE, ArmPhysics, load_model
from robo_sims.simulation import PICTURE_SIZE, Arrays, Simulation, SimulationStep, VectorLayout, overview
from robo_sims.task_family import TaskFamily

Array = npt.NDArray[np.float64]
PERIOD = 0.005
"""[s] control period: 200 Hz."""
SUBSTEPS = 2
"""Steps of the physics and of the controller in a period."""
GENTLE = 15.0
"""[N] largest contact force that costs nothing."""
TOUCH = 0.5
"""[N] contact force from which on the tool counts as touching."""
LEASH = 0.04
"""[m] largest distance of the target from the hand, along each axis."""
DAMPING_RATIO = 0.8
REGULAR = 1e-6 * np.eye(6)
"""Added to J J^T, so that it can be inverted everywhere."""
LOSS = 0.0005
"""Amount subtracted from the reward in each step."""


class ContactSimulation(Simulation):
    """Base class of the contact tasks: reward for work, a constraint cost for force, the largest force as a measure."""

    measures = (Measure("peak_force", "N", "largest contact force of the episode"),)

    def __init__(
        self,
        name: str,
        arrays: Iterable[ArraySpec],
        action: ActionSpec,
        limit: float | str,
        seconds: float,
        words: tuple[str, str],
    ) -> None:
        """words: instruction and success rule."""
        meaning = f"time with a contact force above {GENTLE:g} N"
        cost = CostSpec("force", 0.1, "s", meaning)
        self._layout = VectorLayout(arrays)
        self.spec = EnvironmentSpec(
            name=f"contact/{name}",
            observation=self._layout.observation,
            action=action,
            instruction=words[0],
            max_steps=round(seconds / PERIOD),
            success_rule=words[1],
            costs=(CostSpec("force", cost.limit_of(limit), "s", meaning),),
        )
        self._random = np.random.default_rng()
        self._peak = 0.0

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._peak = 0.0
        self._begin(self._random)
        return self._layout.split(np.concatenate(self._measure()))

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        before, highest = self._work(), 0.0
        for _ in range(SUBSTEPS):
            highest = max(highest, self._advance(action.astype(np.float64)))
        self._peak = max(self._peak, highest)
        work = self._work()
        won = work >= 1.0
        terms = {"work": work - before, "time": -LOSS, "success": float(won)}
        return SimulationStep(
            self._layout.split(np.concatenate(self._measure())),
            sum(terms.values()),
            won,
            success=won,
            reward_terms=terms,
            costs={"force": PERIOD * (highest > GENTLE)},
            measures={"peak_force": self._peak},
        )

    @abstractmethod
    def _begin(self, random: np.random.Generator) -> None:
        """Draw an episode."""

    @abstractmethod
    def _advance(self, action: Array) -> float:
        """Simulate one step of the physics; return the contact force [N]."""

    @abstractmethod
    def _work(self) -> float:
        """Return the share of the work that is done, 0 to 1."""

    @abstractmethod
    def _measure(self) -> list[Array]:
        """Return the arrays of the spec, in its order."""


class MassSimulation(ContactSimulation):
    """Simulation: a mass on one axis must press on a wall for a while; only touch shows where the wall is."""

    mass = 1.0
    """[kg] mass of the body"""
    wall_stiffness, wall_damping = 1500.0, 10.0
    """[N/m] and [N s/m] stiffness and damping of the wall"""
    needed = 0.3
    """[s] time in contact that completes the task"""

    def __init__(self, limit: float | str) -> None:
        arrays = (
            ArraySpec("position", (1,), unit="m"),
            ArraySpec("velocity", (1,), unit="m/s"),
            ArraySpec("target_offset", (1,), low=-LEASH, high=LEASH, unit="m", meaning="from the mass to the target"),
            ArraySpec("force", (1,), unit="N", meaning="of the wall on the mass, positive"),
            ArraySpec("pressed", (1,), low=0, high=1, meaning=f"share of {self.needed} s in contact"),
        )
        action = ActionSpec(("velocity", "stiffness"), (-0.4, 50.0), (0.4, 1000.0), ("m/s", "N/m"), "impedance", PERIOD)
        words = "press on the wall", f"in contact for {self.needed} s in all"
        super().__init__("Mass-v0", arrays, action, limit, 2.0, words)
        self._begin(self._random)

    @override
    def _begin(self, random: np.random.Generator) -> None:
        self.wall = random.uniform(0.05, 0.25)
        self.position = self.velocity = self.target = self.force = self.pressed = 0.0

    @override
    def _advance(self, action: Array) -> float:
        step = PERIOD / SUBSTEPS
        velocity, stiffness = action
        self.target = float(np.clip(self.target + velocity * step, self.position - LEASH, self.position + LEASH))
        depth = self.position - self.wall
        pushed = self.wall_stiffness * depth + self.wall_damping * self.velocity if depth > 0.0 else 0.0
        self.force = max(0.0, pushed)
        spring = stiffness * (self.target - self.position)
        damper = 2.0 * DAMPING_RATIO * np.sqrt(stiffness * self.mass) * self.velocity
        self.velocity += step * float(spring - damper - self.force) / self.mass
        self.position += step * self.velocity
        self.pressed += step * (self.force > TOUCH)
        return self.force

    @override
    def _work(self) -> float:
        return min(1.0, (self.pressed + 1e-9) / self.needed)

    @override
    def _measure(self) -> list[Array]:
        entries = (self.position, self.velocity, self.target - self.position, self.force, min(1.0, self.pressed / self.needed))
        return [np.array([entry]) for entry in entries]

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        picture = np.full((PICTURE_SIZE, PICTURE_SIZE, 3), 245, np.uint8)
        scale, middle = PICTURE_SIZE / 0.4, PICTURE_SIZE // 2

        def pixel(place: float) -> int:
            return round((place + 0.08) * scale)

        cv2.rectangle(picture, (pixel(self.wall), 0), (PICTURE_SIZE, PICTURE_SIZE), (120, 130, 150), -1)
        colour = (220, 60, 50) if self.force > GENTLE else (50, 80, 200)
        cv2.rectangle(picture, (pixel(self.position - 0.05), middle - 40), (pixel(self.position), middle + 40), colour, -1)
        cv2.circle(picture, (pixel(self.target), middle), 5, (90, 180, 110), -1, cv2.LINE_AA)
        return picture

    @override
    def close(self) -> None:
        """Do nothing: the simulation holds nothing that must be closed."""


class WipeSimulation(ContactSimulation):
    """Simulation: the arm wipes a strip of a soft board; only touch shows the board's height and slope."""

    cells = 10
    """Number of parts of the strip that must be wiped."""
    cell = np.array([0.03, 0.016])
    """[m] size of a part along x and y."""
    stiffnesses = (100.0, 800.0)
    """[N/m] smallest and largest stiffness of the hand along an axis."""
    mass = 3.0
    """[kg] that the damping is for: about what the hand feels like in this posture."""
    turning = 60.0, 4.0
    """[N m/rad] and [N m s/rad] stiffness and damping that keep the hand upright."""
    posture = 5.0, 2.0
    """[N m/rad] and [N m s/rad] stiffness and damping of the joints' posture in the null space of the hand."""

    def __init__(self, limit: float | str, detail: str) -> None:
        length = self.cells * self.cell[1]
        arrays = (
            ArraySpec("tool_position", (3,), unit="m", frame="world", meaning="from the strip's start; z above the table"),
            ArraySpec("tool_velocity", (3,), unit="m/s", frame="world"),
            ArraySpec("target_offset", (3,), low=-LEASH, high=LEASH, unit="m", frame="world", meaning="from tool to target"),
            ArraySpec("force", (3,), unit="N", frame="world", meaning="of the board on the tool"),
            ArraySpec("next_from_tool", (2,), unit="m", frame="world", role="goal", meaning="to the nearest part not wiped"),
            ArraySpec("wiped", (self.cells,), low=0, high=1, role="goal", meaning="1 for parts that are wiped"),
        )
        low, high = self.stiffnesses
        names = "vx", "vy", "vz", "stiffness_xy", "stiffness_z"
        units = "m/s", "m/s", "m/s", "N/m", "N/m"
        action = ActionSpec(names, (*(-0.2,) * 3, low, low), (*(0.2,) * 3, high, high), units, "impedance", PERIOD, "world")
        words = "wipe the board", f"all {self.cells} parts of the strip, {100 * length:.0f} cm long, were touched"
        super().__init__("ArmWipe-v0", arrays, action, limit, 5.0, words)
        size = f"0.08 {length / 2 + 0.05:.3f} 0.01"
        # foam: 15 N dent it by 2 mm
        board = f"""<body name="board" mocap="true"><geom name="board" type="box" size="{size}" contype="1" conaffinity="0"
            priority="2" friction="0.3 0.005 0.0001" solref="-80 -3" solimp="0.5 0.5 0.001" rgba="0.36 0.62 0.72 1"/></body>"""
        self.physics = ArmPhysics(board, _torque_model(board))
        self._overview = overview(detail)
        self._board = self.physics.model.geom("board").id
        self._down, self._turn = pointing_down(0.0), np.zeros(3)
        self._begin(self._random)

    @property
    @override
    def mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return self.physics.model, self.physics.data

    @override
    def _begin(self, random: np.random.Generator) -> None:
        physics = self.physics
        physics.reset()
        physics.set_opening(0.0)
        length = self.cells * self.cell[1]
        self.start = np.array([random.uniform(0.45, 0.55), -length / 2, 0.0])
        height, self.slope = random.uniform(0.02, 0.06), random.uniform(-0.12, 0.12)
        tool = self.start + random.uniform([-0.01, -0.01, 0.09], [0.01, 0.01, 0.11])
        beside = np.array([0.04, 0.03, 0.0])
        self._box = self.start - beside, self.start + beside + np.array([0.0, length, 0.14])
        solve(physics, tool, 0.0)
        number = physics.model.body("board").mocapid[0]
        physics.data.mocap_pos[number] = self.start[0], 0.0, height - 0.01
        physics.data.mocap_quat[number] = np.cos(self.slope / 2), np.sin(self.slope / 2), 0.0, 0.0
        physics.settle_initial_state()
        physics.data.ctrl[:JOINTS] = 0.0
        self.target = physics.gripper_position.copy()
        self.force, self.wiped = np.zeros(3), np.zeros(self.cells)

    @override
    def _advance(self, action: Array) -> float:
        physics, data = self.physics, self.physics.data
        position = physics.gripper_position
        wanted = self.target + action[:3] * (PERIOD / SUBSTEPS)
        low, high = self._box
        self.target = np.clip(np.clip(wanted, low, high), position - LEASH, position + LEASH)
        data.ctrl[:JOINTS] = self._torques(action[[3, 3, 4]])
        mujoco.mj_step2(physics.model, data)
        self.force = contact_force(physics, self._board)  # before mj_step1, which finds new contacts without forces
        mujoco.mj_step1(physics.model, data)
        felt = float(np.linalg.norm(self.force))
        if felt > TOUCH:
            self._wipe()
        return felt

    def _torques(self, stiffness: Array) -> Array:
        """Return the joints' torques (7,) [N m] of the impedance controller."""
        physics = self.physics
        jacobian, velocity = physics.jacobian(), physics.joint_velocity
        motion = jacobian @ velocity
        mujoco.mju_subQuat(self._turn, self._down, physics.orientation)  # in the hand's frame
        damping = 2.0 * DAMPING_RATIO * np.sqrt(stiffness * self.mass)
        wrench = np.empty(6)
        wrench[:3] = stiffness * (self.target - physics.gripper_position) - damping * motion[:3]
        wrench[3:] = self.turning[0] * (physics.gripper_matrix @ self._turn) - self.turning[1] * motion[3:]
        rest = self.posture[0] * (NOMINAL_POSTURE - physics.joint_position) - self.posture[1] * velocity
        seen = np.linalg.solve(jacobian @ jacobian.T + REGULAR, jacobian @ rest)
        torques: Array = jacobian.T @ (wrench - seen) + rest
        return torques

    def _wipe(self) -> None:
        across, along, _ = self.physics.gripper_position - self.start
        number = int(np.floor(along / self.cell[1]))
        if 0 <= number < self.cells and abs(across) < self.cell[0] / 2:
            self.wiped[number] = 1.0

    @override
    def _work(self) -> float:
        return float(self.wiped.mean())

    @override
    def _measure(self) -> list[Array]:
        physics = self.physics
        place = physics.gripper_position - self.start
        ahead = (np.arange(self.cells) + 0.5) * self.cell[1] - place[1]
        left = ahead[self.wiped == 0.0]
        nearest = left[np.argmin(np.abs(left))] if left.size else 0.0
        speed = physics.jacobian()[:3] @ physics.joint_velocity
        return [place, speed, self.target - physics.gripper_position, self.force, np.array([-place[0], nearest]), self.wiped]

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self._overview.picture(self.physics.data, "overview")

    @override
    def close(self) -> None:
        self._overview.close()


def contact_force(physics: ArmPhysics, geom: int) -> Array:
    """Return the force (3,) [N] of a geom on everything that touches it, frame world."""
    data, total, wrench = physics.data, np.zeros(3), np.zeros(6)
    for number, pair in enumerate(data.contact.geom):
        if geom in pair:
            mujoco.mj_contactForce(physics.model, data, number, wrench)
            frame = data.contact.frame[number].reshape(3, 3)  # rows are axes; the first points from geom 0 to geom 1
            force = frame.T @ wrench[:3]
            total += force if pair[0] == geom else -force
    return total


def _torque_model(bodies: str) -> mujoco.MjModel:
    """Return the arm's model with motors in place of its joints' servos: a control is a torque [N m]."""
    model = load_model(bodies)
    model.opt.timestep = PERIOD / SUBSTEPS
    model.actuator_gainprm[:JOINTS, 0] = 1.0
    model.actuator_biasprm[:JOINTS] = 0.0
    model.actuator_ctrllimited[:JOINTS] = False
    return model


TASKS: dict[str, Callable[[float | str, str], ContactSimulation]] = {
    "Mass-v0": lambda limit, _: MassSimulation(limit),
    "ArmWipe-v0": WipeSimulation,
}


def _simulate(task: str, limit: float | str = 0.1, detail: str = "plain") -> Simulation:
    """limit: of the cost "force", in seconds per episode. detail: quality of pictures (robo_sims.cameras)."""
    if task not in TASKS:
        raise InvalidSetting("Unknown task.", got=task, allowed=", ".join(TASKS))
    return TASKS[task](limit, detail)


FAMILY = TaskFamily("contact", lambda: tuple(TASKS), _simulate)
"""Family of the environments "contact/...": a mass and an arm in contact at 200 Hz, with a stiffness in the action."""
