"""DAgger: an expert labels every step of a policy (Ross, Gordon & Bagnell 2011, AISTATS, arXiv:1011.0686).

A policy acts in most episodes, an expert in the others; the expert labels every step, and its labels of all steps so far are
cloned. A person who cannot label every step corrects instead: HG-DAgger (robo_policies.learners.hg_dagger).

Differs from the paper: the mixing weight beta is 1 for the recorded episodes, if there are any, and then stays at `share`; who
acts is drawn for an episode, not for a step, so that the policy meets its own mistakes; the policy is updated while it acts,
instead of being trained again after each iteration; executed actions carry noise (Laskey et al. 2017, "DART",
arXiv:1703.09327), which shows the expert more states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_policies.learners.bc import BC, BCSettings
from robo_policies.learners.residual import begun
from robo_rl.errors import InvalidSetting
from robo_rl.extras import EXPERT_ACTION, ExpertActions
from robo_rl.protocols.components import Policy
from robo_rl.protocols.contract import STEPS, Feature, Needs
from robo_rl.protocols.planning import replan
from robo_rl.protocols.sampling import Replay, Sampling
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import ActionSource, Array

SHARE = 0.15
"""Share of the training episodes, 0 to 1, in which the expert acts instead of the policy."""
NOISE = 0.1
"""Standard deviation of the noise added to executed actions, which lie in [-1, 1]."""
LABELS = "expert_actions"


@dataclass(frozen=True)
class Aggregate(Replay):
    """Settings group `replay` of DAgger: the memory of all steps that the expert has labelled with its own action."""

    capacity: int = 500_000
    """Largest number of labelled steps in the memory."""
    learning_starts: int = 1_000
    """Steps before the first update; the policy acts at random until then."""


@dataclass(frozen=True)
class DAggerConfig(BCSettings):
    """Settings of DAgger (Ross et al. 2011, arXiv:1011.0686): behaviour cloning of an expert's labels for the policy's steps.

    Beside the fields of behaviour cloning it sets the memory of labelled steps, and a control with shuffled labels.
    """

    needs = Needs(
        STEPS,
        BCSettings.needs.spaces,
        {Feature.PERSON: "take hg-dagger, which learns from a person's corrections"},
    )

    replay: Aggregate = Aggregate()
    """Memory of the labelled steps."""
    shuffled_labels: bool = False
    """Give each label to another step of its batch, so that nothing can be learnt: the control condition of a study."""

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(Sampling.of(self), extras=(ExpertActions(self.shuffled_labels),))

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> BC:
        return BC(spec, self, seed, labels=LABELS)


class LabelledEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper in which an expert labels every step with its own action, and acts itself in some of the episodes.

    The `info` of a step holds the expert's action without noise, the executed action, and who chose it. The seed of the episode
    determines who acts and the noise.
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        expert_for: Callable[[int], Policy],
        *,
        share: float = SHARE,
        noise: float = NOISE,
    ) -> None:
        """Raise InvalidSetting for a share or a noise out of range.

        expert_for: returns the expert for the seed of an episode.
        share: of the episodes in which the expert acts.
        noise: standard deviation on each element of an executed action, in [-1, 1] units; of discrete actions the chance of a
            random one.
        """
        super().__init__(environment)
        self._inner, self._expert_for, self._share, self._noise = specification(environment), expert_for, share, noise
        most = 1.0 if self._inner.action.is_discrete else np.inf
        if not 0 <= share <= 1 or not 0 <= noise <= most:
            got = f"share {share}, noise {noise}"
            raise InvalidSetting("An expert's labels have settings out of range.", got=got, allowed=f"0 to 1, 0 to {most}")
        self._random = np.random.default_rng(0)
        self._expert: Policy | None = None
        self._acts = False
        self._label: Array = np.zeros(0, np.float32)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, make the expert for its seed, and draw whether the expert or the policy acts in it."""
        seed = int(self.unwrapped.np_random.integers(1 << 31)) if seed is None else seed
        observation, info = super().reset(seed=seed, options=options)
        self._expert = begun(self._expert_for, seed, self._inner)
        self._random = np.random.default_rng([seed, 3])
        self._acts = bool(self._random.random() < self._share)
        self._ask(observation)
        return observation, info

    @override
    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Execute the given action, or the expert's in the expert's episodes, each with noise.

        Returns:
            Gymnasium's five values; `info` also holds the expert's label and the executed action.
        """
        label, spec = self._label, self._inner.action
        wanted = label if self._acts else spec.validate(action)
        executed = self._noisy(np.asarray(wanted, spec.dtype))
        observation, reward, terminated, truncated, info = super().step(executed)
        told: dict[str, Any] = {EXPERT_ACTION: label, "executed_action": executed}
        if self._acts:
            told["action_source"] = ActionSource.SCRIPT
        if self._expert is not None and (not self._acts or info.get("guard")):
            replan(self._expert)
        if not (terminated or truncated):
            self._ask(observation)
        return observation, reward, terminated, truncated, told | info

    def _ask(self, observation: Observation) -> None:
        assert self._expert is not None
        self._label = np.asarray(self._expert.act(observation, deterministic=True), self._inner.action.dtype)

    def _noisy(self, action: Array) -> Array:
        spec = self._inner.action
        if not self._noise:
            return action
        if spec.is_discrete:
            is_random = self._random.random() < self._noise
            return np.asarray(self._random.integers(spec.size) if is_random else action, spec.dtype)
        noisy: Array = np.clip(action + self._random.normal(0.0, self._noise, action.shape), -1.0, 1.0).astype(spec.dtype)
        return noisy
