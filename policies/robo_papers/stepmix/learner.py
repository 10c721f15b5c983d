"""StepMix: conservative exploration, which is optimistic only as far as the baseline's guarantee allows.

Li, Li, Yang, Shen and Shi 2023, "Near-optimal conservative exploration in reinforcement learning under episode-wise
constraints", arXiv:2306.06265, with both of its algorithms, StepMix and EpsMix. From memory of the paper; no official code was
found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

from robo_papers.stepmix.tabular import EstimatedModel, Mixture, Table, TabularTraining, exact_estimate
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.components import Policy
from robo_rl.protocols.contract import OWN, Feature, Needs
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.types import Episode, StateDict


@dataclass(frozen=True)
class StepMixConfig:
    """Settings of StepMix and EpsMix (Li et al. 2023, arXiv:2306.06265), tabular and never much worse than a baseline.

    They set the allowed loss, how the baseline is mixed in, and the width of the bounds.
    """

    needs = Needs((OWN,), frozenset({Feature.DISCRETE}), {Feature.REWARD: "leave reward out", Feature.DEMONSTRATIONS: "none"})

    alpha: float = 0.2
    """Share of the baseline's value that an episode may lose."""
    mixture: Literal["step", "eps"] = "step"
    """"step" (StepMix) follows the baseline up to a step of the episode, "eps" (EpsMix) for whole episodes."""
    bonus_scale: float = 0.2
    """Factor of the half-widths of bounds; 1 is Hoeffding's inequality with the union bound, which is very cautious."""
    trusts_estimates: bool = False
    """Control: compare the estimate, not its lower bound, with the threshold."""

    def __post_init__(self) -> None:
        allowed = {"alpha": (0.0 <= self.alpha <= 1.0, "0 to 1"), "bonus_scale": (self.bonus_scale >= 0.0, "0 or more")}
        require_allowed(self, allowed | {"mixture": (self.mixture in ("step", "eps"), "step or eps")})

    def plan(self, model: EstimatedModel, baseline: Table) -> Mixture:
        """Return the mixture of policies for the next episode: as much of the optimistic one as keeps the threshold."""
        (optimistic, _), threshold = model.optimistic(), self.threshold(model, baseline)
        if self.lower(model, baseline) < threshold:
            return Mixture(baseline, baseline, 0.0)
        starts = [0] if self.mixture == "eps" else [*reversed(range(model.horizon))]
        late = baseline
        for start in starts:  # a candidate follows the baseline before this step and the optimistic policy from it on
            early = np.concatenate((baseline[:start], optimistic[start:]))
            if (bound := self.lower(model, early)) < threshold:
                above = self.lower(model, late)
                return Mixture(late, early, (above - threshold) / (above - bound))
            late = early
        return Mixture(late, late, 0.0)

    def threshold(self, model: EstimatedModel, baseline: Table) -> float:
        """Return the value that is to be kept: (1 - alpha) times an upper bound of the baseline's value."""
        return (1.0 - self.alpha) * model.bound(baseline, upper=True)

    def lower(self, model: EstimatedModel, policy: Table) -> float:
        """Return the lower bound of a policy's value, or its estimate for the control."""
        return exact_estimate(model).bound(policy) if self.trusts_estimates else model.bound(policy)

    def training(
        self,
        environment_factory: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        reward: OnlineRewards | None = None,
    ) -> TabularTraining:
        """Make the training loop at step 0.

        Raises:
            InvalidSetting: The environment is not tabular or has no baseline policy.
        """
        if demonstrations or reward is not None:
            raise InvalidSetting("A tabular learner learns from its environment alone.", got="demonstrations, or a reward")
        return TabularTraining(environment_factory(), self.plan, bonus_scale=self.bonus_scale, steps=steps, seed=seed)

    def restored_policy(
        self, environment_factory: Callable[[], gymnasium.Env[Any, Any]], *, seed: int, state: StateDict
    ) -> Policy:
        """Return the policy of a saved training."""
        training = self.training(environment_factory, steps=0, seed=seed)
        training.load_state_dict(state)
        return training.policy
