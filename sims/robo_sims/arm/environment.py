"""Gymnasium environment of an arm task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import DIVERGED, METADATA
from robo_sims.arm.control import CLOSED, CONTROLS
from robo_sims.arm.costs import ArmCosts
from robo_sims.arm.expert import ScriptedPolicy
from robo_sims.arm.inverse_kinematics import solve
from robo_sims.arm.observed_state import pose_as_observed
from robo_sims.arm.physics import CONTROL_PERIOD, JOINTS, Arm, ArmPhysics, Array, load_model
from robo_sims.arm.pose_sampling import START, START_YAW
from robo_sims.arm.randomization import Randomization, Randomizer, patterns
from robo_sims.arm.rewards import REWARDS
from robo_sims.arm.tasks import TASKS
from robo_sims.arm.tasks.task import ArmTask
from robo_sims.cameras import CameraObservations, Cameras, detail_of

ObservationArrays = dict[str, npt.NDArray[Any]]

CAMERAS = ("front", "wrist")
SEES = {"front": ("front",), "wrist": ("wrist",), "both": CAMERAS}
"""Setting `sees` -> cameras of a policy that must find objects and goals in pictures."""
RENDER_MODES = ("rgb_array", "rgb_array_list")

ARM_ARRAYS = (
    ArraySpec("joint_position", (JOINTS,), unit="rad", meaning="angles of the arm's joints, from the base to the hand"),
    ArraySpec("joint_velocity", (JOINTS,), unit="rad/s", meaning="their rates of change"),
    ArraySpec(
        "gripper_opening",
        (1,),
        unit="m",
        meaning="distance between the two finger pads: 0 closed, 0.08 open; a held thing's width",
    ),
    ArraySpec(
        "end_effector_position",
        (3,),
        unit="m",
        frame="base",
        meaning="x (forward), y (left), z (up) of the point between the finger pads; the table's top is at z = 0",
    ),
    ArraySpec(
        "end_effector_quaternion",
        (4,),
        unit="1",
        frame="base",
        meaning="orientation of the hand, (w, x, y, z) with x not negative",
    ),
)


class ArmEnv(gymnasium.Env[Any, Any]):
    """Seven-axis arm at a table; an episode is exactly reproducible from its seed and its actions."""

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 1 / CONTROL_PERIOD}  # noqa: RUF012 (Gymnasium's own style)

    def __init__(  # noqa: PLR0913 (recipe keys)
        self,
        task: str,
        *,
        control: str = "end_effector_delta",
        reward: str = "sparse",
        cameras: Sequence[str] = (),
        image_size: int = 84,
        sees: str | None = None,
        randomization: str | Mapping[str, float] | None = None,
        costs: Sequence[str] | Mapping[str, float | str] = (),
        action_repeat: int = 1,
        max_steps: int | None = None,
        render_mode: str | None = None,
        detail: str = "plain",
    ) -> None:
        """Build the model; cameras open at the first picture.

        task: a name of robo_sims.arm.tasks.TASKS, such as "ArmPick-v0".
        control: "end_effector_delta", "end_effector_delta_closed" (fingers stay closed) or "joint_position".
        reward: "sparse" pays 1 at success, "dense" also pays progress.
        cameras: pictures to add to the observation, of "front" and "wrist".
        image_size: height and width of the pictures [pixel].
        sees: "front", "wrist" or "both": adds these cameras, and hides objects and goals from the policy: their entries become
            privileged, for critics, experts and rewards.
        randomization: ranges of domain randomisation (robo_sims.arm.randomization), or "visual", "physical" or "all";
            `reset(options={"randomization": False})` leaves it off in one episode.
        costs: constraint costs (robo_sims.arm.costs), of "force", "speed", "corridor", "spill"; a mapping gives other limits.
        action_repeat: control steps of 50 ms per action; a displacement is divided among them.
        max_steps: time limit [actions]; None for the task's own number of control steps.
        render_mode: None; "rgb_array" draws on `render`; "rgb_array_list" draws every control step.
        detail: quality of `render`, "plain" or "pretty" (see robo_sims.cameras); no influence on observations.
        """
        kind = _look_up("arm task", task, TASKS)
        if render_mode not in (None, *RENDER_MODES):
            raise InvalidSetting("Unknown render_mode.", got=repr(render_mode), allowed=(None, *RENDER_MODES))
        if kind.grasps and control == CLOSED:
            allowed = ", ".join(mode for mode in CONTROLS if mode != CLOSED)
            raise InvalidSetting(f"{task} needs fingers that move.", got=f"control {control}", allowed=allowed)
        _require_positive(action_repeat=action_repeat, max_steps=1 if max_steps is None else max_steps)
        self.render_mode = render_mode
        pictures_per_action = action_repeat if render_mode == "rgb_array_list" else 1
        self.metadata = {**self.metadata, "render_fps": pictures_per_action / CONTROL_PERIOD / action_repeat}
        ranges = Randomization.of(randomization)
        self._physics = ArmPhysics(kind.bodies, load_model(kind.bodies, patterns() if ranges and ranges.textures else ""))
        self._randomizer = None if ranges is None else Randomizer(ranges, self._physics.model)
        self._control = _look_up("control mode", control, CONTROLS)(self._physics, action_repeat)
        self._repeat = action_repeat
        self._costs = ArmCosts(costs)
        self._reward = _look_up("reward", reward, REWARDS)()
        self._task: ArmTask = kind(self._physics)
        self._cameras = CameraObservations(self._physics.model, cameras_of(cameras, sees), image_size)
        self._overview = Cameras(height=480, width=640, detail=detail_of(detail))
        self._frames: list[npt.NDArray[np.uint8]] = []
        self._steps = 0
        self._observation: ObservationArrays = {}  # of the previous step; empty between episodes
        self.environment_spec = EnvironmentSpec(
            name=f"robo/{task}",
            observation=ObservationSpec(ARM_ARRAYS + hidden(kind.observation, sees) + self._cameras.arrays),
            action=self._control.spec,
            instruction=kind.instruction,
            max_steps=-(-kind.max_steps // action_repeat) if max_steps is None else max_steps,
            success_rule=kind.success_rule,
            costs=self._costs.specs,
        )
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space

    @property
    def physics(self) -> ArmPhysics:
        """Simulation, for experiments and tests; never for a policy."""
        return self._physics

    @property
    def model(self) -> mujoco.MjModel:
        """MuJoCo model."""
        return self._physics.model

    @property
    def data(self) -> mujoco.MjData:
        """MuJoCo data (state) of the simulation."""
        return self._physics.data

    @property
    def task(self) -> ArmTask:
        """Task of the episode, for experiments and tests; never for a policy."""
        return self._task

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationArrays, dict[str, Any]]:
        """Start an episode, fully determined by the seed."""
        super().reset(seed=seed)
        info: dict[str, Any] = {"success": False}
        if self._randomizer is not None:
            enabled = (options or {}).get("randomization", True)
            info[METADATA] = {"randomization": self._randomizer.begin(self._physics.data, seed, enabled=enabled)}
        begin(self._physics, self._task, self.np_random)
        self._task.restart()
        self._costs.take()
        self._reward.reset(self._task.progress)
        self._steps = 0
        self._observation = self._observe()
        self._frames.clear()
        self._record()
        return self._observation, info

    def step(self, action: npt.NDArray[np.float32]) -> tuple[ObservationArrays, float, bool, bool, dict[str, Any]]:
        """Simulate one action, or less if the task succeeds before its end.

        Raises InvalidAction for a wrong action, and ResetNeeded if no episode is running.
        """
        if not self._observation:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun: call reset() before step().")
        success = self._advance(self.environment_spec.action.to_physical(action))
        self._steps += 1
        info: dict[str, Any] = {"costs": self._costs.take()} if self.environment_spec.costs else {}
        if success is None:
            terms = dict.fromkeys(("success", *self._reward.potential), 0.0)
            info |= {"success": False, "reward_terms": terms, "stop_reason": DIVERGED}
            last, self._observation = self._observation, {}
            return last, 0.0, False, True, info
        terms = {name: float(term) for name, term in self._reward.terms(np.bool_(success), self._task.progress).items()}
        observation = self._observe()
        out_of_time = not success and self._steps >= (self.environment_spec.max_steps or np.inf)
        info |= {"success": success, "reward_terms": terms}
        if success or out_of_time:
            info["stop_reason"] = "goal" if success else "time_limit"
        self._observation = {} if success or out_of_time else observation
        return observation, sum(terms.values()), success, out_of_time, info

    def render(self) -> npt.NDArray[np.uint8] | list[Any] | None:
        """Return the scene (480, 640, 3), or a list with one per control step since the last call, or None."""
        if self.render_mode == "rgb_array_list":
            frames, self._frames = self._frames, []
            return frames
        return self.draw([self._physics.data])[0] if self.render_mode == "rgb_array" else None

    def draw(self, datas: Sequence[mujoco.MjData]) -> npt.NDArray[np.uint8]:
        """Return pictures of the scene (N, 480, 640, 3) in states of its model."""
        return self._overview.draw(datas, "overview")

    def draw_observation(self, observation: Observation) -> npt.NDArray[np.uint8]:
        """Return a picture of the scene (480, 640, 3) as an observation has it, such as an imagined one.

        Raises RenderingUnavailable for a task whose bodies do not follow from its observations.
        """
        physics = ArmPhysics(self._task.bodies, self.model)
        pose_as_observed(physics, observation)
        picture: npt.NDArray[np.uint8] = self.draw([physics.data])[0]
        return picture

    def close(self) -> None:
        """Free the OpenGL contexts."""
        self._cameras.close()
        self._overview.close()

    def scripted_policy(self, seed: int, noise: float = 0.0) -> ScriptedPolicy:
        """Return the task's expert; `noise` is the standard deviation added to each element of its actions."""
        return ScriptedPolicy(self._task.expert, self._control, self.environment_spec, seed=seed, noise=noise)

    def _advance(self, action: npt.NDArray[np.float64]) -> bool | None:
        """Apply an action, at most until success; return success, or None if the simulation diverged."""
        for _ in range(self._repeat):
            targets = self._control.targets(action)
            delay = 0 if self._randomizer is None else round(self._randomizer.latency / self._physics.model.opt.timestep)
            if delay:
                self._physics.advance(delay)
            self._physics.data.ctrl[:] = targets
            self._physics.advance(self._physics.substeps - delay)
            if self._physics.monitor.reason() is not None:
                return None
            self._costs.measure(self._physics)
            self._record()
            if self._task.is_success():
                return True
        return False

    def _record(self) -> None:
        if self.render_mode == "rgb_array_list":
            self._frames.append(self.draw([self._physics.data])[0])

    def _observe(self) -> ObservationArrays:
        arrays = {name: values.astype(np.float32) for name, values in observe(self._physics, self._task).items()}
        observation = arrays | self._cameras.observe(self._physics.data)
        return observation if self._randomizer is None else self._randomizer.disturb(observation)


def cameras_of(cameras: Sequence[str], sees: str | None) -> Sequence[str]:
    """Return the cameras of both arguments; raises UnknownName."""
    if sees is None:
        return cameras
    return (*(added := _look_up("value of sees", sees, SEES)), *(name for name in cameras if name not in added))


def hidden(arrays: tuple[ArraySpec, ...], sees: str | None) -> tuple[ArraySpec, ...]:
    """Return the entries of a task, those of objects and goals privileged if the policy sees them in pictures."""
    if sees is None:
        return arrays
    return tuple(replace(array, role="privileged") if array.role in ("object", "goal") else array for array in arrays)


def begin(physics: ArmPhysics, task: ArmTask, random: np.random.Generator) -> None:
    """Set a simulation to an initial state of the task."""
    physics.reset()
    solve(physics, random.uniform(*START), random.uniform(-START_YAW, START_YAW))
    task.place(physics, random)
    physics.settle_initial_state()


def observe(arm: Arm, task: ArmTask) -> dict[str, Array]:
    """Return the entries of the observation, (..., size) each, in the order of the spec."""
    return {
        "joint_position": arm.joint_position,
        "joint_velocity": arm.joint_velocity,
        "gripper_opening": arm.gripper_opening[..., None],
        "end_effector_position": arm.gripper_position,
        "end_effector_quaternion": arm.gripper_quaternion,
        **task.observe(),
    }


def _look_up(kind: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise UnknownName(kind, str(name), known)
    return known[name]


def _require_positive(**settings: int) -> None:
    for name, value in settings.items():
        if not isinstance(value, int) or value < 1:
            raise InvalidSetting(f"{name} is out of range.", got=value, allowed="integer from 1")
