"""A vector environment of Gymnasium over a batch of simulations: episodes, autoreset, seeds, names of `infos`.

What `gymnasium.vector.SyncVectorEnv` would return for the single environments, this returns too; the tests compare the two.
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
from robo_rl.types import DIVERGED, StateDict
from robo_sims.batched.infos import only, tell
from robo_sims.batched.pictures import LatestPictures
from robo_sims.cameras import CameraObservations

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Mask = npt.NDArray[np.bool_]


class BatchStep(NamedTuple):
    """Results of one control step in every simulation; rows of episodes that begin have no meaning."""

    vectors: Array
    """(N, D) float32, fresh: all arrays of the observation side by side, in the order of the spec."""
    rewards: Array
    """(N,) float64"""
    terminated: Mask
    """(N,)"""
    diverged: Mask | None = None
    """(N,), or None if no simulation diverged."""
    success: Mask | None = None
    """(N,), or None if the task has no notion of success."""
    reward_terms: Mapping[str, Array] = MappingProxyType({})
    """name -> (N,) float64"""


class Batch(Protocol):
    """Simulations of one task. Vectors and rewards are the single environment's, to the bit."""

    spec: EnvironmentSpec
    num_envs: int
    reset_info: Mapping[str, bool] = MappingProxyType({})
    """What the info of a reset says."""
    instructions: Array | None = None
    """(N,) the task in words, of the present episodes; None if the words are always the same."""
    judges_divergence: bool = False
    """Whether the info of a diverged step tells success and reward terms, as some single environments do."""

    datas: Sequence[mujoco.MjData] = ()
    """The MuJoCo state of each environment; empty if MuJoCo is not involved."""

    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        """Begins episodes in some environments (a seed determines one entirely) and returns their vectors (len(seeds), D)."""

    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        """Applies physical actions (N, A) for one control period; begins episodes instead in the environments in `seeds`.

        The numbers of a diverged simulation must not trouble its neighbours: no floating-point error may be raised.
        """

    def render(self) -> Sequence[Array]:
        """Returns a picture for people of each environment, (H, W, 3)."""

    def state_dict(self) -> StateDict:
        """Returns what later steps depend on."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""

    def close(self) -> None:
        """Ends threads and frees the simulator."""


class BatchedEnvironment(gymnasium.vector.VectorEnv[Arrays, Array, Array], Stateful):
    """`num_envs` environments of one task in one object."""

    def __init__(
        self,
        batch: Batch,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        cameras: Sequence[str] = (),
        image_size: int = 84,
        render_mode: str | None = None,
    ) -> None:
        """Adds the pictures of cameras to what the batch observes, as `camera_<name>`.

        image_size: height and width of the pictures [pixel]. render_mode: None or "rgb_array".
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
        self._over = np.ones(self.num_envs, np.bool_)  # the episode has ended, or none has begun
        self._is_begun = False
        self._any_over = True
        self._everyone = np.ones(self.num_envs, np.bool_)
        self._last = np.zeros((self.num_envs, ends[-1]), np.float32)  # vectors of the step before

    @property
    def batch(self) -> Batch:
        """The simulations; for experiments and tests, never for a policy."""
        return self._batch

    @property
    def datas(self) -> Sequence[mujoco.MjData]:
        """The MuJoCo state of each environment; for experiments and tests, never for a policy."""
        return self._batch.datas

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Begins an episode in every environment, or in those of `options["reset_mask"]`.

        seed: that of the first environment, the others count up from it; or one for each.
        """
        mask, seeds = _reset_mask(options, self.num_envs), _seeds(seed, self.num_envs)
        self._last[mask] = self._batch.begin({index: seeds[index] for index in np.flatnonzero(mask).tolist()})
        self._pictures.draw(mask)
        self._steps[mask], self._over[mask] = 0, False
        self._is_begun, self._any_over = True, bool(self._over.any())
        infos: dict[str, Any] = {}
        self._tell_beginning(infos, mask)
        return self._split(self._last), infos

    def step(self, actions: Array) -> tuple[Arrays, Array, Mask, Mask, dict[str, Any]]:
        """Applies actions (N, A) from [-1, 1] for one control period; raises InvalidAction before anything has moved."""
        control = self.environment_spec.action.to_physical_batch(actions, self.num_envs)
        beginning = self._beginning()
        self._steps += 1
        step = self._batch.step(control, beginning)
        diverged = self._find_diverged(step)
        truncated = self._steps >= self._limit
        told = self._amend(step, truncated, diverged, beginning) if beginning or diverged is not None else None
        truncated &= ~step.terminated
        infos = self._infos(step, told)
        if beginning:
            self._tell_beginning(infos, self._mask(beginning))
        self._pictures.draw(self._everyone if diverged is None else ~diverged)
        self._last, self._over = step.vectors, step.terminated | truncated
        self._any_over = bool(np.count_nonzero(self._over))
        if self._any_over:
            infos = self._end(infos, step, truncated, diverged)
        return self._split(self._last), step.rewards, step.terminated, truncated, infos

    def render(self) -> tuple[Array, ...] | None:
        """Returns a picture (H, W, 3) of each environment, or None unless the render mode is "rgb_array"."""
        return tuple(self._batch.render()) if self.render_mode == "rgb_array" else None

    @override
    def state_dict(self) -> StateDict:
        return {
            "batch": self._batch.state_dict(),
            "steps": self._steps.copy(),
            "over": self._over.copy(),
            "last": self._last.copy(),
            "pictures": self._pictures.copy(),
            "is_begun": self._is_begun,
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned, of as many environments: the next step is the one that would have come."""
        if len(state["steps"]) != self.num_envs:
            raise InvalidSetting(
                "The state is of another number of environments.", got=len(state["steps"]), allowed=self.num_envs
            )
        self._pictures.restore(state.get("pictures", {}))  # states from before batches had cameras have none
        self._batch.load_state_dict(state["batch"])
        self._steps, self._over, self._last = (np.array(state[name]) for name in ("steps", "over", "last"))
        self._is_begun, self._any_over = bool(state["is_begun"]), bool(self._over.any())

    def close_extras(self, **_: Any) -> None:
        """Ends the threads and frees the OpenGL context."""
        self._batch.close()
        if hasattr(self, "_pictures"):  # not so where the settings were refused
            self._pictures.close()

    def __del__(self) -> None:
        if hasattr(self, "_batch"):
            self.close()

    def _beginning(self) -> dict[int, int | None]:
        """Returns the environments whose episode begins in this step instead of being simulated."""
        if self._is_begun and not self._any_over:
            return {}
        over = np.flatnonzero(self._over).tolist()
        if not self._is_begun or self._mode is not AutoresetMode.NEXT_STEP:
            how = 'reset(options={"reset_mask": ...})' if self._is_begun else "reset()"
            raise gymnasium.error.ResetNeeded(
                f"The episodes of environments {over} are over or have not begun: call {how} before step()."
            )
        self._steps[over] = -1  # 0 after this step
        return dict.fromkeys(over)

    def _find_diverged(self, step: BatchStep) -> Mask | None:
        """Adds to what the simulations say where observation or reward is not finite; None if nothing is wrong."""
        if _is_finite(step.vectors) and _is_finite(step.rewards):
            return step.diverged
        unsound = ~(np.isfinite(step.vectors).all(axis=1) & np.isfinite(step.rewards))
        return unsound if step.diverged is None else unsound | step.diverged

    def _amend(self, step: BatchStep, truncated: Mask, diverged: Mask | None, beginning: Collection[int]) -> Mask:
        """Writes what holds for beginning and diverged environments; returns which tell success and reward terms."""
        told = ~self._mask(beginning)
        step.rewards[~told] = 0.0
        step.terminated[~told] = False
        if diverged is not None:
            diverged &= told
            step.rewards[diverged] = 0.0
            step.terminated[diverged] = False
            truncated[diverged] = True
            step.vectors[diverged] = self._last[diverged]
            if not self._batch.judges_divergence:
                told &= ~diverged
        return told

    def _infos(self, step: BatchStep, told: Mask | None) -> dict[str, Any]:
        """Returns success and reward terms, of all environments or of those that tell."""
        everyone = self._everyone.copy()
        infos: dict[str, Any] = {}
        self._tell_instructions(infos, everyone)
        if step.success is not None:
            infos |= {"success": step.success, "_success": everyone}
        if step.reward_terms:
            terms: dict[str, Any] = {}
            for name, values in step.reward_terms.items():
                terms[name], terms[f"_{name}"] = values, everyone
            infos |= {"reward_terms": terms, "_reward_terms": everyone}
        return infos if told is None else only(infos, told)

    def _tell_beginning(self, infos: dict[str, Any], mask: Mask) -> None:
        """Adds what environments say of the episodes that begin."""
        tell(infos, self._batch.reset_info, mask)
        self._tell_instructions(infos, mask)

    def _tell_instructions(self, infos: dict[str, Any], mask: Mask) -> None:
        if self._batch.instructions is not None:
            tell(infos, {"instruction": self._batch.instructions}, mask)

    def _end(self, infos: dict[str, Any], step: BatchStep, truncated: Mask, diverged: Mask | None) -> dict[str, Any]:
        """Says why episodes ended; begins them anew at once in the mode SAME_STEP."""
        tell(infos, {"stop_reason": "failure"}, step.terminated)
        if step.success is not None:
            tell(infos, {"stop_reason": "goal"}, step.terminated & step.success)
        tell(infos, {"stop_reason": "time_limit"}, truncated)
        if diverged is not None:
            tell(infos, {"stop_reason": DIVERGED}, diverged)
        return self._begin_at_once(infos) if self._mode is AutoresetMode.SAME_STEP else infos

    def _begin_at_once(self, infos: dict[str, Any]) -> dict[str, Any]:
        over = self._over.copy()
        indices = np.flatnonzero(over).tolist()
        ended, last = self._split(self._last), np.full(self.num_envs, None, object)
        for index in indices:
            last[index] = {name: value[index] for name, value in ended.items()}
        now = only(infos, ~over) | {"final_obs": last, "_final_obs": over, "final_info": only(infos, over), "_final_info": over}
        self._last[over] = self._batch.begin(dict.fromkeys(indices))
        self._pictures.draw(over)
        self._steps[over], self._over[over], self._any_over = 0, False, False
        self._tell_beginning(now, over)
        return now

    def _split(self, vectors: Array) -> Arrays:
        """Returns name -> (N, *shape), pictures included: fresh, because the next step may need the present arrays."""
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
