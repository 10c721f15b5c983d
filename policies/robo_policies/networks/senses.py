"""What actor and critic see of an observation: scaled vectors, more of them for the critic alone, and pictures.

N environments, D columns of vectors, P of privileged ones, F features of pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robo_policies.learners.normalization import ObservationNormalizer, RunningObservations, Unchanged
from robo_policies.networks.columns import Columns
from robo_policies.networks.sight import Blind, Convolutions, Seen, Sight, Views, require_pictures, require_role
from robo_policies.networks.tanh_towers import Floats
from robo_rl.errors import InvalidSetting
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, StateDict


class Senses:
    """Turns observations into inputs of networks: F features, D vectors, P privileged ones, and a one that meets the biases."""

    def __init__(self, spec: EnvironmentSpec, *, convolutions: Sequence[int], privileged_critic: bool, normalize: bool) -> None:
        _require(spec, convolutions, privileged_critic)
        observation = spec.observation
        self.pictures = observation.subset("image").arrays if convolutions else ()
        self.sight: Sight = Convolutions(self.pictures, convolutions) if self.pictures else Blind()
        self._columns = Columns(observation.vectors)
        self._extra_columns = Columns(observation.subset(*(("privileged",) if privileged_critic else ())))
        self.privileged = self._extra_columns.size
        """P: the last of the inputs before the one are the critic's alone."""
        self.size = self._columns.size + self.privileged
        """D + P"""
        self.normalizer, self._extra_normalizer = (
            _normalizer(columns.size, normalize) for columns in (self._columns, self._extra_columns)
        )
        self._row = np.zeros((1, self._columns.size), np.float32)

    def vectors(self, observations: Mapping[str, Array]) -> Floats:
        """Returns (N, D + P), not yet scaled."""
        vectors = self._columns.stack(observations)
        if not self.privileged:
            return vectors
        return np.concatenate((vectors, self._extra_columns.stack(observations)), axis=1)

    def fit(self, vectors: Floats) -> None:
        """Merges vectors into the moments; those of what is privileged are no part of the policy."""
        visible, extra = np.split(vectors, (self._columns.size,), axis=1) if self.privileged else (vectors, None)
        self.normalizer.fit(visible)
        if extra is not None:
            self._extra_normalizer.fit(extra)

    def scaled(self, vectors: Floats) -> Floats:
        """Returns the vectors (N, D + P), scaled."""
        if not self.privileged:
            return self.normalizer(vectors)
        visible, extra = np.split(vectors, (self._columns.size,), axis=1)
        return np.concatenate((self.normalizer(visible), self._extra_normalizer(extra)), axis=1)

    def inputs(self, observations: Mapping[str, Array]) -> Floats:
        """Returns the inputs (N, F + D + P + 1) of both networks."""
        return self._with_features(self.scaled(self.vectors(observations)), observations)

    def visible_inputs(self, observation: Observation) -> Floats:
        """Returns the inputs (1, F + D + 1) of the actor for one observation, which may lack what is privileged."""
        self._columns.write(observation, self._row[0])
        pictures = {each.name: observation[each.name][None] for each in self.pictures}
        return self._with_features(self.normalizer(self._row), pictures)

    def _with_features(self, scaled: Floats, observations: Mapping[str, Array]) -> Floats:
        vectors: Seen = np.concatenate((scaled, np.ones((len(scaled), 1), np.float32)), axis=1)
        if self.pictures:
            vectors = Views(vectors, {each.name: observations[each.name] for each in self.pictures}, np.arange(len(scaled)))
        return self.sight.look(vectors)

    def state_dict(self) -> StateDict:
        """Returns the moments, those of the policy and those of the critic."""
        own = self.normalizer.state_dict()
        return own | {"privileged": self._extra_normalizer.state_dict()} if self.privileged else own

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.normalizer.load_state_dict(state)
        if self.privileged:
            self._extra_normalizer.load_state_dict(state["privileged"])


def _normalizer(size: int, normalize: bool) -> ObservationNormalizer:
    return RunningObservations(size) if normalize else Unchanged()


def _require(spec: EnvironmentSpec, convolutions: Sequence[int], privileged_critic: bool) -> None:
    """Raises InvalidSetting where nothing is seen, or less than was asked for."""
    observation = spec.observation
    if convolutions:
        require_pictures(spec)
    if privileged_critic:
        require_role(spec, "privileged_critic", "privileged")
    if not observation.vectors and not convolutions:
        raise InvalidSetting(
            f"PPO sees nothing of {spec.name!r}.",
            got=list(observation),
            allowed="proprioception, object or goal entries, or pictures with convolutions",
            fix="set convolutions where there are pictures, for instance to [8, 16, 32, 32]",
        )
