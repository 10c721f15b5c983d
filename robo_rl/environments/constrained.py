"""The wrapper `constrained`: limits of costs, further costs, such as those of a reward model, and costs as penalties.

Penalties are for learners that do not support constraints, such as those of Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_rl.environments.scored import ScoredSteps
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.cost import PLAIN, CostSpec, costs_of
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import MEASURES

PENALTY = "penalty_"
"""Prefix of the reward terms that subtract costs."""
BUDGET = "budget_"
"""Prefix of the observations of remaining budgets."""
REQUIRED, OPTIONAL = {"reward", "limit"}, ("settings", "unit", "meaning")
"""Required keys, and optional ones, of an entry of `ConstrainedWrapper.models`."""


class ConstrainedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds costs, limits, penalties and observed budgets as `ConstrainedWrapper` says."""

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        *,
        limits: Mapping[str, float | str] | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
        measures: Mapping[str, float | str] | None = None,
        ends: Mapping[str, float | str] | None = None,
        penalties: Mapping[str, float] | None = None,
        budgets: Sequence[str] = (),
    ) -> None:
        """Add costs, limits, penalties and budgets to an environment.

        Args:
            environment: The environment.
            limits: Cost -> largest sum over an episode, such as 25 or "3 N s".
            models: New cost -> {reward: NAME or program:FILE, settings: {...}, limit: L}. The cost of a step is the value of
                this reward model, or 0 if the value is negative.
            measures: Measure of the environment, such as CARLA's collisions -> limit. The cost of a step is the growth of the
                measure.
            ends: Stop reason, such as "failure" (lava) or "safety" -> limit. A step that ends the episode for this reason costs
                1.
            penalties: Cost -> weight. The weighted cost is subtracted from the reward, as the reward term "penalty_NAME".
            budgets: Costs whose budget is observed as "budget_NAME": share of the limit that is left, 1 at first, 0 at the
                limit, negative beyond it.

        Raises:
            UnknownName: There is no such cost or measure.
            InvalidSetting: Two costs have the same name, or a value is out of range.
        """
        super().__init__(environment)
        spec = specification(environment)
        self._models = {name: _scorer(name, model, spec) for name, model in (models or {}).items()}
        self._measures, self._ends, self._measured = measures or {}, ends or {}, dict[str, float]()
        added = [cost for cost, _ in self._models.values()]
        added += [_measured(environment, name, limit) for name, limit in self._measures.items()]
        added += [_limited(CostSpec(name, 0.0, meaning="ends of episodes"), limit) for name, limit in self._ends.items()]
        declared = {cost.name: cost for cost in (*spec.costs, *added)}
        if len(declared) < len(spec.costs) + len(added):
            names = [cost.name for cost in (*spec.costs, *added)]
            raise InvalidSetting(
                "Two costs have one name.", got=", ".join(names), allowed="names that differ", fix="rename one"
            )
        if PLAIN in (limits or {}) and not spec.costs:  # reported without being declared
            declared |= {PLAIN: CostSpec(PLAIN, 0.0)}
        for kind, named in (("limits", limits or {}), ("penalties", penalties or {}), ("budgets", budgets)):
            for name in named:
                if name not in declared:
                    raise UnknownName(f"cost in {kind} of {spec.name}", str(name), declared)
        costs = (_limited(cost, (limits or {}).get(cost.name, cost.limit)) for cost in declared.values())
        self._penalties = {name: _weight(name, value) for name, value in (penalties or {}).items()}
        observed = tuple(_budget(name) for name in budgets)
        observation = ObservationSpec((*spec.observation.arrays, *observed))
        self.environment_spec: EnvironmentSpec = replace(spec, costs=tuple(costs), observation=observation)
        self.observation_space = observation.space
        self._bounds = {cost.name: cost.limit for cost in self.environment_spec.costs if cost.name in budgets}
        if unlimited := [name for name, limit in self._bounds.items() if limit == 0.0]:
            raise InvalidSetting("A budget of 0 has no shares.", got=", ".join(unlimited), allowed="limits above 0")
        self._left = dict[str, float]()

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._measured = dict.fromkeys(self._measures, 0.0)
        for _, model in self._models.values():
            model.begin(observation, info)
        self._left = dict.fromkeys(self._bounds, 1.0)
        return self._with_budgets(observation), info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        taken = self.env.step(action)
        observation, reward, terminated, truncated, info = taken
        costs = dict(costs_of(info))
        costs |= {name: max(0.0, model.value(action, taken)) for name, (_, model) in self._models.items()}
        for name, before in self._measured.items():
            self._measured[name] = info[MEASURES][name]
            costs[name] = max(0.0, self._measured[name] - before)
        costs |= {name: float((terminated or truncated) and info.get("stop_reason") == name) for name in self._ends}
        penalties = {f"{PENALTY}{name}": -weight * costs[name] for name, weight in self._penalties.items()}
        terms = info.get("reward_terms") or ({"task": float(reward)} if penalties else {})
        info = {**info, "costs": costs, "reward_terms": {**terms, **penalties}}
        for name, limit in self._bounds.items():
            self._left[name] -= costs[name] / limit
        observation = self._with_budgets(observation)
        return observation, float(reward) + sum(penalties.values()), terminated, truncated, info

    def _with_budgets(self, observation: Observation) -> Observation:
        return {**observation, **{f"{BUDGET}{name}": np.array([left], np.float32) for name, left in self._left.items()}}


def _budget(name: str) -> ArraySpec:
    return ArraySpec(f"{BUDGET}{name}", (1,), high=1.0, meaning=f"share of the limit of {name} that is left; below 0 beyond it")


def _scorer(name: str, model: Mapping[str, Any], spec: EnvironmentSpec) -> tuple[CostSpec, ScoredSteps]:
    """Return a cost and the object that computes it with a reward model; raises InvalidSetting, UnknownName."""
    allowed = "{reward: NAME, settings: {...}, limit: L}, and unit, meaning"
    if not isinstance(model, Mapping) or not REQUIRED <= set(model) <= {*REQUIRED, *OPTIONAL}:
        raise InvalidSetting(f"The model of cost {name!r} is not complete.", got=model, allowed=allowed)
    words = {key: model[key] for key in ("unit", "meaning") if key in model}
    scores = ScoredSteps(f"cost {name!r}", str(model["reward"]), model.get("settings", {}), spec)
    return _limited(CostSpec(name, 0.0, **words), model["limit"]), scores


def _measured(environment: gymnasium.Env[Any, Any], name: str, limit: float | str) -> CostSpec:
    has_any = environment.has_wrapper_attr("measures")
    known = {measure.name: measure for measure in environment.get_wrapper_attr("measures")} if has_any else {}
    if name not in known:
        raise UnknownName(f"measure of {specification(environment).name}", name, known)
    measure = known[name]
    return _limited(CostSpec(name, 0.0, "1" if measure.per else measure.unit, measure.meaning), limit)


def _limited(cost: CostSpec, limit: float | str) -> CostSpec:
    return replace(cost, limit=cost.limit_of(limit))


def _weight(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < np.inf:
        raise InvalidSetting(f"The penalty of cost {name!r} is no weight.", got=value, allowed="a number, 0 or more")
    return float(value)


@dataclass(frozen=True)
class ConstrainedWrapper(EnvironmentWrapper):
    """Settings of the wrapper `constrained`: add costs, limit them, subtract them from the reward, observe budgets.

    Nothing is changed by default.
    """

    changes = ("observation", "costs")

    limits: dict[str, float | str] = field(default_factory=dict)
    """Cost -> largest sum over an episode, such as 25 or "3 N s"."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name of a new cost -> {reward: NAME or program:FILE, settings: {...}, limit: L}. The cost of a step is the value of the
    reward model, or 0 if the value is negative."""
    measures: dict[str, float | str] = field(default_factory=dict)
    """Name of a measure of the environment, such as CARLA's collisions -> limit. The growth of the measure in a step is a
    cost."""
    ends: dict[str, float | str] = field(default_factory=dict)
    """Stop reason, such as "failure" (lava) or "safety" -> limit of its cost. A step that ends the episode for this reason
    costs 1."""
    penalties: dict[str, float] = field(default_factory=dict)
    """Cost -> weight, 0 or more: the weighted cost is subtracted from the reward, as the reward term "penalty_NAME"."""
    budgets: tuple[str, ...] = ()
    """Costs whose budget the policy observes as "budget_NAME": share of the limit that is left, 1 at first, 0 at the limit,
    negative beyond it."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> ConstrainedEnv:
        return ConstrainedEnv(environment, **vars(self))
