"""Imagined environments: vector and single. The source of each of their steps is IMAGINED."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from typing_extensions import override

from robo_papers.world_models.batch import WorldBatch
from robo_rl.environments.make import make_environment
from robo_rl.errors import RenderingUnavailable
from robo_rl.spec.environment import Observation
from robo_rl.types import ActionSource, info_of
from robo_sims.batched.environment import Array, Arrays, BatchedEnvironment, BatchStep, Mask
from robo_sims.batched.infos import add_info


class ImaginedEnvironments(BatchedEnvironment):
    """Vector environment of imaginations of one world."""

    @override
    def _infos(self, step: BatchStep, reported: Mask | None) -> dict[str, Any]:
        infos = super()._infos(step, reported)
        add_info(infos, {"action_source": int(ActionSource.IMAGINED)}, self._everyone if reported is None else reported)
        return infos

    def place(self, index: int, observation: Observation) -> Arrays:
        """Replace the first observation of an episode that has just begun.

        Args:
            index: Index of the environment.
            observation: Name -> array of the observation to begin with.

        Returns:
            The present observations of all environments, first axis N.
        """
        batch = self.batch
        assert isinstance(batch, WorldBatch)
        row = {name: np.asarray(value)[None] for name, value in observation.items()}
        batch.states[index] = self._last[index] = self.environment_spec.observation.stack(row)[0]
        return self._split(self._last)


class ImaginedEnv(gymnasium.Env[Any, Any]):
    """One imagination of a world: a batch of one.

    `reset(options={"observation": ...})` begins with an observation. It draws if the real environment can draw observations.
    """

    def __init__(self, batch: WorldBatch, render_mode: str | None = None) -> None:
        self._many = ImaginedEnvironments(batch, autoreset_mode=AutoresetMode.DISABLED)
        self.environment_spec = batch.spec
        self.observation_space, self.action_space = batch.spec.observation.space, batch.spec.action.space
        self.render_mode = render_mode
        self.metadata = dict(self._many.metadata)
        self._world = batch.world
        self._stage: Stage | None = None
        self._newest: Mapping[str, Array] = {}

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        observations, infos = self._many.reset(seed=seed)
        if options and (begin := options.get("observation")) is not None:
            self.environment_spec.observation.validate(begin)
            observations = self._many.place(0, begin)
        self._newest = {name: values[0] for name, values in observations.items()}
        return dict(self._newest), info_of(infos, 0)

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        sound = self.environment_spec.action.validate(action)
        observations, rewards, terminated, truncated, infos = self._many.step(sound[None])
        self._newest = {name: values[0] for name, values in observations.items()}
        told = {name: bool(value) if name == "success" else value for name, value in info_of(infos, 0).items()}
        return dict(self._newest), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), told

    @override
    def render(self) -> Any:
        if self.render_mode != "rgb_array":
            return None
        if self._stage is None:
            self._stage = Stage(self._world.facts, self.environment_spec.name)
        return self._stage.draw(self._newest)

    @override
    def close(self) -> None:
        self._many.close()
        if self._stage is not None:
            self._stage.close()


class Stage:
    """Real environment of a learned world, used only to draw given observations; it is not stepped."""

    def __init__(self, facts: Mapping[str, Any], name: str) -> None:
        """Make the real environment of a learned world, which draws the observations that the world imagines.

        Args:
            facts: Facts of the world, with the name and the arguments of its environment.
            name: Name of the environment if the facts have none.

        Raises:
            RenderingUnavailable: The environment has no `draw_observation`.
        """
        arguments = {key: value for key, value in facts.get("arguments", {}).items() if key != "render_mode"}
        self._environment = make_environment(facts.get("environment") or name, **arguments)
        if not self._environment.has_wrapper_attr("draw_observation"):
            self._environment.close()
            raise RenderingUnavailable(
                "Imagined states cannot be drawn.", got=name, allowed="an environment with draw_observation(observation)"
            )

    def draw(self, observation: Observation) -> npt.NDArray[np.uint8]:
        """Return a picture (H, W, 3)."""
        picture: npt.NDArray[np.uint8] = self._environment.get_wrapper_attr("draw_observation")(observation)
        return picture

    def close(self) -> None:
        """Free the OpenGL context."""
        self._environment.close()
