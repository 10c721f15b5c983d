"""Vector environment of Gymnasium over a batch of simulations: episodes, autoreset, seeds, `infos`.

It returns the same as `gymnasium.vector.SyncVectorEnv` over the single environments; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from typing_extensions import override

from robo_rl.environments.vector import autoreset_mode_of
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import DIVERGED, Metrics, StateDict
from robo_sims.batched.infos import add_info, select_info
from robo_sims.batched.pictures import LatestPictures
from robo_sims.cameras import CameraObservations

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Mask = npt.NDArray[np.bool_]


class BatchStep(NamedTuple):
    """Results of one control step in all N simulations; rows of environments that began an episode are undefined."""

    vectors: Array
    """Observations (N, D) float32, a new array: the arrays of the spec, concatenated in its order."""
    rewards: Array
    """Reward of each environment in this step, (N,) float64."""
    terminated: Mask
    """True for tasks that ended (N,)."""
    diverged: Mask | None = None
    """True for diverged simulations (N,); None if there are none."""
    success: Mask | None = None
    """True for success in this step (N,); None if the task has no success criterion."""
    reward_terms: Mapping[str, Array] = MappingProxyType({})
    """Name of a term -> its values (N,) float64."""
    costs: Mapping[str, Array] = MappingProxyType({})
    """Name of a constraint cost -> its values (N,) float64."""


class SimulationBatch(Protocol):
    """N simulations of one task, which a BatchedEnvironment makes a vector environment.

    Observations and rewards are bit-identical to those of the single environment.
    """

    spec: EnvironmentSpec
    num_envs: int
    reset_info: Mapping[str, bool] = MappingProxyType({})
    """Entries that the dictionary `info` has at each reset, for the environments that begin an episode."""
    instructions: Array | None = None
    """Instructions of the current episodes (N,); None if all episodes have that of the spec."""
    evaluates_divergence: bool = False
    """True if the `info` of a diverged step also has success and reward terms."""
    datas: Sequence[mujoco.MjData] = ()
    """MuJoCo data of each environment; empty if MuJoCo is not the simulator."""

    @property
    def metrics(self) -> Metrics:
        """Counters since the batch was made, tag -> value, for the log of a training; {} by default."""
        return {}

    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        """Begin episodes in some environments.

        seeds: number of an environment -> seed of its episode, or None to continue its random numbers.

        Returns the first observations (len(seeds), D), in the order of `seeds`.
        """

    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        """Simulate one control period; environments in `seeds` begin an episode instead.

        A diverged simulation must not affect the others: no floating-point error may be raised.

        Args:
            control: Actions (N, A) in physical units.
            seeds: Number of an environment -> seed of its new episode, or None to continue its random numbers.
        """

    def render(self) -> Sequence[Array]:
        """Return a rendered picture (H, W, 3) of each environment."""

    def state_dict(self) -> StateDict:
        """Return the whole state on which later steps depend."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""

    def close(self) -> None:
        """Stop the threads and free the simulator."""


class BatchedEnvironment(gymnasium.vector.VectorEnv[Arrays, Array, Array], Stateful):
    """Vector environment of Gymnasium over a SimulationBatch: action limits, time limit, autoreset, pictures, `infos`."""

    def __init__(
        self,
        batch: SimulationBatch,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        cameras: Sequence[str] = (),
        image_size: int = 84,
        render_mode: str | None = None,
    ) -> None:
        """Make the vector environment.

        Args:
            batch: The simulations.
            autoreset_mode: "NextStep", "SameStep" or "Disabled", as in Gymnasium.
            cameras: Cameras of the MuJoCo model whose pictures are added to the observation as `camera_<name>`.
            image_size: Height and width of these pictures [pixel].
            render_mode: None, or "rgb_array" for `render`.

        Raises:
            InvalidSetting: A mode or size is not allowed.
            UnknownName: The model has no such camera.
        """
        self._batch = batch
        self._mode = autoreset_mode_of(autoreset_mode)
        if render_mode not in (None, "rgb_array"):
            raise InvalidSetting("Unknown render_mode.", got=repr(render_mode), allowed=(None, "rgb_array"))
        self.render_mode = render_mode
        self._pictures = LatestPictures()
        self.num_envs, spec = batch.num_envs, batch.spec
        if batch.datas:
            observed = CameraObservations(batch.datas[0].model, cameras, image_size)
            self._pictures, spec = LatestPictures(observed, batch.datas), observed.added_to(spec)
        self.environment_spec = spec
        self.single_observation_space, self.single_action_space = spec.observation.space, spec.action.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {"autoreset_mode": self._mode, "render_modes": ["rgb_array"]}
        self.metadata["render_fps"] = 1.0 / spec.action.control_period if spec.action.control_period else 10.0
        vectors = batch.spec.observation.arrays
        ends = np.cumsum([array.size for array in vectors]).tolist()
        self._parts = [
            (array.name, slice(end - array.size, end), (self.num_envs, *array.shape), array.dtype)
            for array, end in zip(vectors, ends, strict=True)
        ]
        self._limit = spec.max_steps or np.iinfo(np.int64).max
        self._steps = np.zeros(self.num_envs, np.int64)
        self._over = np.ones(self.num_envs, np.bool_)  # no episode is running
        self._was_reset = False
        self._any_over = True
        self._everyone = np.ones(self.num_envs, np.bool_)
        self._last = np.zeros((self.num_envs, ends[-1]), np.float32)  # vectors of the previous step

    @property
    def batch(self) -> SimulationBatch:
        """The simulations, for experiments and tests; a policy must not use them."""
        return self._batch

    @property
    def metrics(self) -> Metrics:
        """Counters of the simulations for the log of a training, by tag."""
        return self._batch.metrics

    @property
    def datas(self) -> Sequence[mujoco.MjData]:
        """MuJoCo data of each environment, for experiments and tests; a policy must not use them."""
        return self._batch.datas

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Begin an episode in all environments, or in those of the boolean array `options["reset_mask"]` (N,).

        seed: seed of the first environment, incremented for the others, or a list with one seed for each.
        """
        mask, seeds = _reset_mask(options, self.num_envs), _seeds(seed, self.num_envs)
        self._last[mask] = self._batch.begin({index: seeds[index] for index in np.flatnonzero(mask).tolist()})
        self._pictures.draw(mask)
        self._steps[mask], self._over[mask] = 0, False
        self._was_reset, self._any_over = True, bool(self._over.any())
        infos: dict[str, Any] = {}
        self._tell_beginning(infos, mask)
        return self._split(self._last), infos

    def step(self, actions: Array) -> tuple[Arrays, Array, Mask, Mask, dict[str, Any]]:
        """Apply actions (N, A) in [-1, 1] for one control period; raises InvalidAction before any simulation step."""
        control = self.environment_spec.action.to_physical_batch(actions, self.num_envs)
        beginning = self._starting()
        self._steps += 1
        step = self._batch.step(control, beginning)
        diverged = self._find_diverged(step)
        truncated = self._steps >= self._limit
        reported = self._amend(step, truncated, diverged, beginning) if beginning or diverged is not None else None
        truncated &= ~step.terminated
        infos = self._infos(step, reported)
        if beginning:
            self._tell_beginning(infos, self._mask(beginning))
        self._pictures.draw(self._everyone if diverged is None else ~diverged)
        self._last, self._over = step.vectors, step.terminated | truncated
        self._any_over = bool(np.count_nonzero(self._over))
        if self._any_over:
            infos = self._end(infos, step, truncated, diverged)
        return self._split(self._last), step.rewards, step.terminated, truncated, infos

    def render(self) -> tuple[Array, ...] | None:
        """Return a picture (H, W, 3) of each environment, or None unless the render mode is "rgb_array"."""
        return tuple(self._batch.render()) if self.render_mode == "rgb_array" else None

    @override
    def state_dict(self) -> StateDict:
        return {
            "batch": self._batch.state_dict(),
            "steps": self._steps.copy(),
            "over": self._over.copy(),
            "last": self._last.copy(),
            "pictures": self._pictures.copy(),
            "is_begun": self._was_reset,
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        if len(state["steps"]) != self.num_envs:
            raise InvalidSetting(
                "The state is of another number of environments.", got=len(state["steps"]), allowed=self.num_envs
            )
        self._pictures.restore(state["pictures"])
        self._batch.load_state_dict(state["batch"])
        self._steps, self._over, self._last = (np.array(state[name]) for name in ("steps", "over", "last"))
        self._was_reset, self._any_over = bool(state["is_begun"]), bool(self._over.any())

    def close_extras(self, **_: Any) -> None:
        """Stop the simulation threads and free the OpenGL context; `close` calls it."""
        self._batch.close()
        if hasattr(self, "_pictures"):  # absent if the settings were rejected
            self._pictures.close()

    def __del__(self) -> None:
        if hasattr(self, "_batch"):
            self.close()

    def _starting(self) -> dict[int, int | None]:
        """Return the environments that begin an episode in this step instead of being simulated."""
        if self._was_reset and not self._any_over:
            return {}
        over = np.flatnonzero(self._over).tolist()
        if not self._was_reset or self._mode is not AutoresetMode.NEXT_STEP:
            how = 'reset(options={"reset_mask": ...})' if self._was_reset else "reset()"
            raise gymnasium.error.ResetNeeded(
                f"The episodes of environments {over} are over or have not begun: call {how} before step()."
            )
        self._steps[over] = -1  # 0 after this step
        return dict.fromkeys(over)

    def _find_diverged(self, step: BatchStep) -> Mask | None:
        """Return the mask (N,) of simulations that diverged or have a non-finite observation or reward; None if none has."""
        if _is_finite(step.vectors) and _is_finite(step.rewards):
            return step.diverged
        unsound = ~(np.isfinite(step.vectors).all(axis=1) & np.isfinite(step.rewards))
        return unsound if step.diverged is None else unsound | step.diverged

    def _amend(self, step: BatchStep, truncated: Mask, diverged: Mask | None, beginning: Collection[int]) -> Mask:
        """Overwrite the results of environments that began an episode or diverged.

        Returns the mask (N,) of the environments whose `infos` have success and reward terms.
        """
        reported = ~self._mask(beginning)
        step.rewards[~reported] = 0.0
        step.terminated[~reported] = False
        if diverged is not None:
            diverged &= reported
            step.rewards[diverged] = 0.0
            step.terminated[diverged] = False
            truncated[diverged] = True
            step.vectors[diverged] = self._last[diverged]
            if not self._batch.evaluates_divergence:
                reported &= ~diverged
        return reported

    def _infos(self, step: BatchStep, reported: Mask | None) -> dict[str, Any]:
        """Return instruction, success, reward terms and costs of the environments in the mask `reported`, or of all if None."""
        everyone = self._everyone.copy()
        infos: dict[str, Any] = {}
        self._tell_instructions(infos, everyone)
        if step.success is not None:
            infos |= {"success": step.success, "_success": everyone}
        for kind, values in (("reward_terms", step.reward_terms), ("costs", step.costs)):
            if values:
                infos |= {kind: {**values, **{f"_{name}": everyone for name in values}}, f"_{kind}": everyone}
        return infos if reported is None else select_info(infos, reported)

    def _tell_beginning(self, infos: dict[str, Any], mask: Mask) -> None:
        """Add the info of a reset for the environments in a mask."""
        add_info(infos, self._batch.reset_info, mask)
        self._tell_instructions(infos, mask)

    def _tell_instructions(self, infos: dict[str, Any], mask: Mask) -> None:
        if self._batch.instructions is not None:
            add_info(infos, {"instruction": self._batch.instructions}, mask)

    def _end(self, infos: dict[str, Any], step: BatchStep, truncated: Mask, diverged: Mask | None) -> dict[str, Any]:
        """Add stop reasons for ended episodes; in the mode SAME_STEP also begin their next episodes."""
        add_info(infos, {"stop_reason": "failure"}, step.terminated)
        if step.success is not None:
            add_info(infos, {"stop_reason": "goal"}, step.terminated & step.success)
        add_info(infos, {"stop_reason": "time_limit"}, truncated)
        if diverged is not None:
            add_info(infos, {"stop_reason": DIVERGED}, diverged)
        return self._begin_at_once(infos) if self._mode is AutoresetMode.SAME_STEP else infos

    def _begin_at_once(self, infos: dict[str, Any]) -> dict[str, Any]:
        over = self._over.copy()
        indices = np.flatnonzero(over).tolist()
        ended, last = self._split(self._last), np.full(self.num_envs, None, object)
        for index in indices:
            last[index] = {name: value[index] for name, value in ended.items()}
        now = select_info(infos, ~over) | {
            "final_obs": last,
            "_final_obs": over,
            "final_info": select_info(infos, over),
            "_final_info": over,
        }
        self._last[over] = self._batch.begin(dict.fromkeys(indices))
        self._pictures.draw(over)
        self._steps[over], self._over[over], self._any_over = 0, False, False
        self._tell_beginning(now, over)
        return now

    def _split(self, vectors: Array) -> Arrays:
        """Return observations name -> (N, *shape), pictures included, as copies that later steps do not change."""
        copy = vectors.copy()
        arrays = {name: copy[:, part].reshape(shape).astype(dtype, copy=False) for name, part, shape, dtype in self._parts}
        return arrays | self._pictures.copy()

    def _mask(self, indices: Collection[int]) -> Mask:
        mask = np.zeros(self.num_envs, np.bool_)
        mask[list(indices)] = True
        return mask


def _is_finite(array: Array) -> bool:
    return bool(np.count_nonzero(np.isfinite(array)) == array.size)  # thrice as fast as all()


def _seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    if seed is None or isinstance(seed, int | np.integer):
        return [None if seed is None else int(seed) + index for index in range(count)]
    if len(seed) != count:
        raise InvalidSetting("There must be one seed for each environment.", got=len(seed), allowed=count)
    return list(seed)


def _reset_mask(options: dict[str, Any] | None, count: int) -> Mask:
    mask = (options or {}).get("reset_mask")
    if mask is None:
        return np.ones(count, np.bool_)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (count,) or not mask.any():
        raise InvalidSetting(
            'options["reset_mask"] must choose environments.', got=mask, allowed=f"array of {count} bool, at least one True"
        )
    return mask
