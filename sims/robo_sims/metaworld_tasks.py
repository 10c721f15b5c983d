"""Meta-World's fifty manipulation tasks with an observed goal, and their scripted experts.

Start and goal of an episode are drawn from the seed of the reset alone (Meta-World itself uses NumPy's global generator, or a
fixed list of fifty). The observation has Meta-World's order: this step, previous step, goal.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Literal, cast

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, optional
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation
from robo_sims.cameras import upright
from robo_sims.simulation import Arrays, MujocoSimulation, SimulationStep, VectorLayout
from robo_sims.task_family import TaskFamily

with optional("Meta-World", "metaworld", "metaworld"):
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    from metaworld.policies import ENV_POLICY_MAP

Reward = Literal["dense", "sparse"]


def _moment(prefix: str) -> list[ArraySpec]:
    """Return the specs of the 18 numbers of one time step; a task without a second object has zeros for it."""
    return [
        ArraySpec(f"{prefix}hand_position", (3,), unit="m", frame="world"),
        ArraySpec(f"{prefix}gripper_opening", (1,), low=0.0, high=1.0, meaning="distance of the fingers over 0.1 m"),
        ArraySpec(f"{prefix}first_object_position", (3,), unit="m", frame="world", role="object"),
        # (w, x, y, z) in some tasks, (x, y, z, w) in others, as in the source
        ArraySpec(f"{prefix}first_object_orientation", (4,), frame="world", role="object"),
        ArraySpec(f"{prefix}second_object_position", (3,), unit="m", frame="world", role="object"),
        ArraySpec(f"{prefix}second_object_orientation", (4,), frame="world", role="object"),
    ]


_LAYOUT = VectorLayout(
    [*_moment(""), *_moment("previous_"), ArraySpec("goal_position", (3,), unit="m", frame="world", role="goal")]
)


class MetaWorldSimulation(MujocoSimulation):
    """One task of Meta-World."""

    def __init__(
        self, task: str, action_repeat: int = 1, reward: Reward = "dense", camera: str = "corner2", detail: str = "plain"
    ) -> None:
        """Make the task.

        Args:
            task: Name, such as reach-v3.
            action_repeat: Meta-World's control steps per action; displacement and control period grow with it.
            reward: "dense", summed over the repeats, or "sparse": 1 at success, which then ends the episode.
            camera: Camera of `render`.
            detail: Quality of `render`, as in robo_sims.cameras.
        """
        if reward not in ("dense", "sparse"):
            raise InvalidSetting("Unknown reward of a Meta-World task.", got=reward, allowed=("dense", "sparse"))
        super().__init__(_observable_task(task), detail)
        if not 1 <= action_repeat <= self._environment.max_path_length:
            raise InvalidSetting("action_repeat is out of range.", got=action_repeat, allowed="1 to the length of an episode")
        self._camera = camera
        self._repeat = action_repeat
        self._is_sparse = reward == "sparse"
        reach = float(self._environment.action_scale) * action_repeat
        self._limits = np.array([reach, reach, reach, 1.0])
        self.spec = EnvironmentSpec(
            f"metaworld/{task}",
            _LAYOUT.observation,
            ActionSpec(
                ("x", "y", "z", "gripper_effort"),
                tuple(-self._limits),
                tuple(self._limits),
                ("m", "m", "m", "1"),
                "end_effector_delta",
                float(self._environment.dt) * action_repeat,
                frame="world",
            ),
            version=3,
            instruction=task.removesuffix("-v3").replace("-", " "),
            max_steps=self._environment.max_path_length // action_repeat,
            success_rule="the task's own test (info['success'] of the source) holds at the end of a step",
        )
        self.scripted_policy = functools.partial(MetaWorldExpert, task, self.spec)

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._environment.seed(seed)
        mujoco.mj_resetData(*self.mujoco)  # the source moves the hand from the present state before its own reset
        observation, _ = self._environment.reset()
        return _LAYOUT.split(observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Move the target of the hand by (x, y, z) [m] and set the gripper's effort in [-1, 1]."""
        command = (action / self._limits).astype(np.float32)
        total = 0.0
        for _ in range(self._repeat):
            observation, reward, _, _, info = self._environment.step(command)
            total += float(reward)
            success = bool(info["success"])
            if self._is_sparse and success:
                break
        reward = float(success) if self._is_sparse else total
        return SimulationStep(_LAYOUT.split(observation), reward, self._is_sparse and success, success=success)

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        """Return a picture (H, W, 3) of a camera of Meta-World, rotated if the camera is upside down."""
        data = self._environment.data
        return upright(self._overview.picture(data, self._camera), data, self._camera)


class MetaWorldExpert:
    """Meta-World's scripted policy for a task, with Gaussian noise on each element of its actions.

    `noise` is the standard deviation, for actions in [-1, 1]; 0 for none.
    """

    def __init__(self, task: str, spec: EnvironmentSpec, seed: int, noise: float = 0.0) -> None:
        self.environment_spec = spec
        self._policy = cast(Any, ENV_POLICY_MAP[task])()  # each is declared as the abstract class
        self._random = np.random.default_rng(seed)
        self._noise = noise

    def reset(self) -> None:
        """Do nothing: the policy has no memory of earlier steps."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.float32]:
        """Return an action (4,) in [-1, 1], with noise unless `deterministic`."""
        vector = np.concatenate([observation[name] for name in _LAYOUT.observation]).astype(np.float64)
        with warnings.catch_warnings():  # it warns of actions beyond the limits, which it relies on
            warnings.filterwarnings("ignore", "Constant")
            action: npt.NDArray[np.float64] = self._policy.get_action(vector)
        if self._noise > 0.0 and not deterministic:
            action = action + self._random.normal(0.0, self._noise, action.shape)
        clipped: npt.NDArray[np.float32] = np.clip(action, -1.0, 1.0).astype(np.float32)
        return clipped


def _observable_task(task: str) -> Any:
    environment: Any = ALL_V3_ENVIRONMENTS[task]()
    environment._partially_observable = False
    del environment.sawyer_observation_space  # cached with a hidden goal
    environment._set_task_called = True  # the task is set by drawing start and goal, not from the source's list
    environment._freeze_rand_vec = False
    environment.seeded_rand_vec = True
    return environment


FAMILY = TaskFamily("metaworld", lambda: ALL_V3_ENVIRONMENTS, MetaWorldSimulation)
"""Family `metaworld`: fifty tasks of an arm at a table."""
