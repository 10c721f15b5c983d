"""The success classifier as a reward, from a folder that `robo-rl reward fit classifier` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.rewards.fitted_folder import bytes_of, fitted, require_named, save_fitted, tensors_of
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.images.picture_reward import PICTURES_ALONE, PictureReward, Pictures, pictures_of
from robo_rl.rewards.success.classifier import ClassifierConfig, SuccessNetwork
from robo_rl.rewards.success.examples import Guard, Measured, guarded, moments_of
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Labels, RewardLabels


def save(
    folder: Path,
    network: SuccessNetwork,
    config: ClassifierConfig,
    spec: EnvironmentSpec,
    measured: Measured,
    facts: Mapping[str, Any],
) -> None:
    """Write a fitted classifier durably into a new folder; `config.camera` must name its camera."""
    shape = [*(spec.observation[config.camera].shape if config.camera else network.mean.shape)]
    state = {"arrays": dict(network.state_dict()), "shape": shape, "config": asdict(config), "spec": spec.to_json()}
    save_fitted(folder, "classifier", state | {"measured": measured.to_json(), "facts": dict(facts)})


@dataclass(frozen=True, kw_only=True)
class ClassifierReward(PictureReward):
    """Reward that is the probability that a moment shows success, by a classifier fitted to recorded successes.

    The command `robo-rl reward fit classifier` fits it.
    """

    reads_words: ClassVar[bool] = False
    folder: str = ""
    """Folder that `robo-rl reward fit classifier` wrote."""
    camera: str = ""
    """Camera of the pictures; empty for the camera of the fit."""
    answer: Literal["probability", "success"] = "probability"
    """probability: probability of success; success: 1 if the probability reaches the threshold of the fit, else 0."""
    guarded: bool = True
    """True to count a success only if the guard of the fit holds. False allows a reward from single pictures, which cannot be
    guarded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_named(self.folder, "classifier")

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the reward, and a hash of parameters, threshold, guard and settings; the folder does not count."""
        settings = [
            {name: value for name, value in self.settings().items() if name != "folder"},
            self._threshold,
            self._config.guard,
        ]
        return "classifier", hash_of(json.dumps(settings, sort_keys=True).encode(), *bytes_of(self._saved["arrays"]))

    def score(self, pictures: Pictures, firsts: Pictures, instruction: str | None) -> Labels:
        """Return scores of single pictures; raises InvalidSetting if the classifier reads numbers or has a guard."""
        if not self._config.camera:
            raise InvalidSetting("This classifier looks at float observations, not at pictures.", fix="fit one with a camera")
        self._require_no_guard()
        return Labels.finite(self._answers(self._network.probabilities(pictures)))

    @property
    def eye(self) -> str:
        """Camera of the pictures, by default that of the fit; "" if the classifier reads numbers."""
        return (self.camera or self._config.camera) if self._config.camera else ""

    @property
    def fitted_to(self) -> frozenset[str]:
        """Identities of the episodes in the fit, including those that determined the threshold; empty if they are unknown."""
        return frozenset(self._saved["facts"].get("identities", ()))

    @property
    def looks_at_pictures(self) -> bool:
        """True if the classifier reads pictures."""
        return bool(self._config.camera)

    def label(self, episode: Episode) -> RewardLabels:
        """Return rewards; a step is valid if all its inputs are finite. Raises SpecMismatch for another environment."""
        self._require_known(episode)
        moments, valid = moments_of(self._spec, episode, self.eye)
        found = guarded(Labels.finite(self._network.probabilities(moments), valid), self._guard, episode.observations)
        after = slice(1 if self.mode == "level" else 0, None)
        scores = Labels.finite(self._answers(found.values)[after], found.valid[after])
        return self.rewards(scores, terminated=episode.terminated).by(self.identity, self.prompt_hash)

    def _require_known(self, episode: Episode) -> None:
        """Raise SpecMismatch for an episode of another environment.

        An episode of pictures only, without an environment, is accepted if the classifier reads nothing else and their size
        fits.
        """
        found = [f"fingerprint: {episode.spec_fingerprint!r} of the episode, {self._spec.fingerprint!r} of {self._spec.name}"]
        if episode.spec_fingerprint == self._spec.fingerprint:
            return
        if episode.spec_fingerprint == PICTURES_ALONE and self.eye:
            self._require_no_guard()
            shown, known = (
                pictures_of(episode.observations, self.eye).shape[1:],
                self._spec.observation[self._config.camera].shape,
            )
            found = [] if shown == known else [f"size: {shown} of the pictures, {known} of {self._spec.name}"]
        if found:
            raise SpecMismatch("Classifier and episode", found, fix="fit a classifier to this environment's data")

    def _require_no_guard(self) -> None:
        if self._guard is not None:
            raise InvalidSetting(
                "Pictures alone do not show whether the guard of this classifier holds.",
                got=self._config.guard,
                fix="--reward.settings.guarded false, or fit one without a guard",
            )

    def _answers(self, probabilities: Any) -> Any:
        if self.answer == "probability":
            return probabilities
        return (probabilities >= self._threshold).astype(np.float32)

    @cached_property
    def _saved(self) -> dict[str, Any]:
        return fitted(self.folder, "classifier")

    @cached_property
    def _config(self) -> ClassifierConfig:
        return ClassifierConfig(**self._saved["config"])

    @cached_property
    def _guard(self) -> Guard | None:
        return Guard.parse(self._config.guard) if self._config.guard and self.guarded else None

    @property
    def _threshold(self) -> float:
        return float(self._saved["measured"]["threshold"])

    @cached_property
    def _spec(self) -> EnvironmentSpec:
        return EnvironmentSpec.from_json(self._saved["spec"])

    @cached_property
    def _network(self) -> SuccessNetwork:
        network = SuccessNetwork(self._saved["shape"], self._config.hidden, self._config.image_size)
        network.load_state_dict(tensors_of(self._saved["arrays"]))
        return network.eval()
