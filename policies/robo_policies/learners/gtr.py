"""GTR: reinforcement learning with a corrector at each step.

Wei et al. 2025, "GTR: Guided Thought Reinforcement Prevents Thought Collapse in RL-based VLM Agent Training",
arXiv:2503.08525. The policy acts, a corrector names the action that it would have taken, and both are learned from:

    loss = -min(r A, clip(r, 1 - low, 1 + high) A) - w log pi(a*|s),   (s, a*) from all corrections so far

as in DAgger (Ross et al. 2011, arXiv:1011.0686), which has the second term alone. A is the return-to-go, standardised over the
batch. The corrector is the environment's scripted policy; it watches whole episodes and never acts.

Differs from the paper: its corrector rewrites the thought of a vision-language model and leaves the action alone, so that the
weight must stay. Here actions themselves are corrected, and a corrector that errs would be copied: the weight falls to 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.episodic import ClippedConfig, ClippedLearner, EpisodicTraining
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.extras import returns_to_go
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode, Metrics, StateDict

CORRECTED = "corrected_actions"
"""Metadata of an episode: actions (T, ...) of its corrector."""


@dataclass(frozen=True)
class GTRConfig(ClippedConfig):
    """Settings of GTR."""

    corrections: int = 64
    """Steps of a batch of episodes for which the corrector is asked, drawn at random; a person or a model is slow."""
    remembered: int = 10_000
    """Newest corrections that are learned from."""
    weight: float = 1.0
    """w, of the corrections in the loss, at first."""
    fades_over: int = 100
    """Updates over which w falls to 0; 0 keeps it, which is right only for a corrector that never errs."""
    corrector_noise: float = 0.0
    """Noise on the corrector's actions, to try how it errs: as that of `robo-rl record --noise`."""
    reward_weight: float = 1.0
    """Of the task's reward in the loss; 0 is DAgger."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {name: (getattr(self, name) >= 1, "1 or more") for name in ("corrections", "remembered")}
        least = ("weight", "fades_over", "corrector_noise", "reward_weight")
        require_allowed(self, counts | {name: (getattr(self, name) >= 0, "0 or more") for name in least})

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> GTR:
        return GTR(spec, self, seed)

    @override
    def loop(self) -> type[EpisodicTraining]:
        return CorrectedTraining


class GTR(ClippedLearner):
    """Learns from returns and from corrections."""

    def __init__(self, spec: EnvironmentSpec, config: GTRConfig, seed: int) -> None:
        super().__init__(spec, config, seed)
        self.config = config
        self._corrections: deque[tuple[dict[str, Array], Array]] = deque(maxlen=config.remembered)
        """Observation that the policy reads, and the corrector's action."""
        self._batch: tuple[Tensor, Tensor] | None = None

    @property
    def weight(self) -> float:
        """Weight of the corrections at this update."""
        fading = self.config.fades_over
        return self.config.weight * (max(0.0, 1.0 - self.parts.updates / fading) if fading else 1.0)

    @override
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        self._take(episodes)
        returns = np.concatenate([returns_to_go(each.rewards, self.config.discount) for each in episodes])
        deviation = returns.std()
        advantages = (returns - returns.mean()) / deviation if deviation > 1e-6 else np.zeros_like(returns)
        ratio = self.climb(episodes, self.config.reward_weight * advantages)
        figures: dict[str, float | Tensor] = {
            "ratio": ratio,
            "corrections": float(len(self._corrections)),
            "correction_weight": self.weight,
        }
        return self.parts.finish_update(figures)

    def _take(self, episodes: Sequence[Episode]) -> None:
        """Remember corrections of some steps."""
        places = [(each, step) for each in episodes for step in range(len(each))]
        names = self.parts.encoder.reads
        for number in self.random.permutation(len(places))[: self.config.corrections].tolist():
            episode, step = places[number]
            row = {name: episode.observations[name][step] for name in names}
            self._corrections.append((row, episode.metadata[CORRECTED][step]))

    @override
    def other_loss(self, features: Tensor, actions: Tensor, log_densities: Tensor) -> Tensor:
        if not self.weight:
            return super().other_loss(features, actions, log_densities)
        drawn = self.random.integers(len(self._corrections), size=self._clipped.batch_size).tolist()
        rows = [self._corrections[number] for number in drawn]
        encoder, device = self.parts.encoder, self.parts.device
        seen = {name: np.stack([row[name] for row, _ in rows]) for name in encoder.reads}
        actions = torch.from_numpy(np.stack([action for _, action in rows])).to(device)
        features = encoder(encoder.tensors(encoder.stack(seen), seen, device))
        return -self.weight * self.log_densities(features, actions).mean()

    @override
    def state_dict(self) -> StateDict:
        rows = [row for row, _ in self._corrections]
        seen = {name: np.stack([row[name] for row in rows]) for name in self.parts.encoder.reads} if rows else {}
        kept: dict[str, Any] = {"observations": seen}
        if rows:
            kept["actions"] = np.stack([action for _, action in self._corrections])
        return super().state_dict() | {"corrections": kept}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        kept: Any = state["corrections"]
        self._corrections.clear()
        for number, action in enumerate(kept.get("actions", ())):
            row = {name: np.array(values[number]) for name, values in kept["observations"].items()}
            self._corrections.append((row, np.array(action)))


class CorrectedTraining(EpisodicTraining):
    """Shows each episode to the corrector."""

    def __init__(self, environment: gymnasium.Env[Any, Any], config: Any, *, steps: int, seed: int, **other: Any) -> None:
        super().__init__(environment, config, steps=steps, seed=seed, **other)
        if not environment.has_wrapper_attr("scripted_policy"):
            raise InvalidSetting(
                f"{self._spec.name} has no corrector of the policy.",
                got="no scripted policy",
                allowed="an environment with one, such as those of robo/ and tabular/",
            )
        self._corrector: Policy = environment.get_wrapper_attr("scripted_policy")(seed, noise=config.corrector_noise)

    @override
    def _play(self, number: int) -> Episode:
        episode = super()._play(number)
        self._corrector.reset()
        actions = [
            self._corrector.act({name: values[step] for name, values in episode.observations.items()})
            for step in range(len(episode))
        ]
        return replace(episode, metadata={**episode.metadata, CORRECTED: actions})
