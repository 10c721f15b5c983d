"""Check whether a learner can be trained with a recipe: needs of the learner against the support of each training loop."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, fields
from typing import Any

from robo_rl.entry_points import known, load
from robo_rl.errors import InvalidSetting, RoboRLError
from robo_rl.protocols.contract import ANY_SPACE, DATA, ONLINE, OWN, STEPS, Feature, Loop, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.delayed_rewards import unlike_single_steps

OWN_NUMBERS = ("num_envs", "n_envs")
"""Names of the setting for the number of environments, in learners that bring their own loop."""


@dataclass(frozen=True)
class Capabilities:
    """Features of a recipe with which a learner can be trained, with its present settings, over all its training loops."""

    loops: tuple[Loop, ...]
    """Training loops that can train the learner, the usual one first."""
    spaces: frozenset[Feature]
    """Kinds of actions and observations that the learner supports; ENVIRONMENTS if it has a setting for their number."""
    requires: frozenset[Feature]
    """Features of a recipe without which this learner cannot be trained."""
    excludes: dict[Feature, str]
    """Feature that the settings rule out -> remedy in words."""
    has_device: bool
    """True if the learner has a setting `device`."""

    @classmethod
    def of(cls, config: Any) -> Capabilities:
        """Return the capabilities of a learner from its settings."""
        needs = needs_of(config)
        requires, excludes = frozenset[Feature](), dict(needs.excludes)
        if any(loop in STEPS or loop in DATA for loop in needs.loops):
            if config.sampling.offline_fraction > 0:
                requires = frozenset({Feature.DEMONSTRATIONS})
            others = unlike_single_steps(config.sampling)
            if others and ONLINE in needs.loops:
                excludes[Feature.RELABELLED] = f"single steps of the environment can be relabelled: change {', '.join(others)}"
        has_device = any(item.name == "device" for item in fields(config))
        own = {Feature.ENVIRONMENTS} if own_number(config) else set()
        return cls(needs.loops, needs.spaces | own, requires, excludes, has_device)

    @property
    def features(self) -> frozenset[Feature]:
        """Features that at least one of the loops supports."""
        return self.spaces.union(*(loop.supports for loop in self.loops)) - set(self.excludes)

    def loop(self, asked: Set[Feature]) -> Loop | None:
        """Return the first of `loops` that can train the learner with all requested features, or None."""
        return next((loop for loop in self.loops if self._trains(loop, asked)), None)

    def missing(self, asked: Set[Feature]) -> frozenset[Feature]:
        """Return the smallest set of features that must be added to `asked` so that a loop can train.

        Empty if none would help.
        """
        found = [self.requires | loop.requires for loop in self.loops]
        helping = [more - asked for loop, more in zip(self.loops, found, strict=True) if self._trains(loop, asked | more)]
        return min(helping, key=len, default=frozenset())

    def cell(self, feature: Feature) -> str:
        """Return the entry for one feature in the table of learners and features.

        Returns:
            "yes", "no", "needs" (every recipe must have the feature), "set" (another setting would allow it), or "with ..." and
            the features that must be added.
        """
        if feature not in self.features:
            return "set" if feature in self.excludes else "no"
        if missing := self.missing({feature, self._actions}) - self.requires - self.loops[0].requires:
            return "with " + " and ".join(sorted(map(str, missing)))
        return "needs" if feature in self.requires | self.loops[0].requires else "yes"

    @property
    def resume(self) -> str:
        """Kind of resume of the usual loop, as `Loop.resume`."""
        return self.loops[0].resume

    @property
    def _actions(self) -> Feature:
        return Feature.CONTINUOUS if Feature.CONTINUOUS in self.spaces else Feature.DISCRETE

    def _trains(self, loop: Loop, asked: Set[Feature]) -> bool:
        return self.requires | loop.requires <= asked <= (loop.supports | self.spaces) - set(self.excludes)


def own_number(config: Any) -> str:
    """Return the name of the setting for the number of environments in the learner's own loop; "" if there is none."""
    return next((item.name for item in fields(config) if item.name in OWN_NUMBERS), "")


def needs_of(config: Any) -> Needs:
    """Return the needs that a learner's settings declare; without `needs` (third parties) they are derived from `sampling`."""
    declared = getattr(config, "needs", None)
    if isinstance(declared, Needs):
        return declared
    if (sampling := getattr(config, "sampling", None)) is None:
        return Needs((OWN,), ANY_SPACE)
    return Needs(DATA if sampling.offline_fraction == 1.0 else STEPS, ANY_SPACE)


def asked_by(spec: EnvironmentSpec) -> frozenset[Feature]:
    """Return the features that an environment requires of a learner: kind of actions, and PICTURES if there are no vectors."""
    actions = Feature.DISCRETE if spec.action.is_discrete else Feature.CONTINUOUS
    return frozenset({actions} if spec.observation.vectors else {actions, Feature.PICTURES})


def require_loop(name: str, config: Any, asked: Set[Feature]) -> Loop:
    """Return the training loop for the learner `name` with settings `config` and the requested features.

    Raises:
        InvalidSetting: No loop can train it with all of these features; the message says which are missing or excluded.
    """
    able = Capabilities.of(config)
    if (loop := able.loop(asked)) is not None:
        return loop
    if unsupported := asked - able.features:
        raise InvalidSetting(
            f"The learner {name} cannot be trained with {_nouns(unsupported)}.",
            got=_settings(unsupported),
            allowed=f"learners that can: {', '.join(learners_with(unsupported)) or 'none together'}",
            fix=able.excludes.get(min(unsupported, key=str), f"choose one of them, or leave out: {_settings(unsupported)}"),
        )
    if missing := able.missing(asked):
        raise InvalidSetting(
            f"The learner {name} needs {_nouns(missing)} with this recipe.",
            got=_settings(asked & able.features - able.spaces) or "nothing of it",
            allowed=f"a recipe with {_settings(missing)}",
            fix=f"set {_settings(missing)}, or choose another learner (robo-rl learners)",
        )
    chosen = asked - able.spaces
    raise InvalidSetting(
        f"The learner {name} cannot be trained with all of these at once.",
        got=_settings(chosen),
        allowed="; or ".join(sorted({_settings(chosen & loop.supports) for loop in able.loops} - {""})),
        fix="leave one of them out",
    )


def learners() -> Iterator[tuple[str, Capabilities]]:
    """Yield name and capabilities of every learner that can be loaded with its default settings."""
    for name in known("learners"):
        try:
            yield name, Capabilities.of(load("learners", name)())
        except (RoboRLError, TypeError):  # a broken package, or settings without defaults
            continue


def learners_with(features: Set[Feature]) -> list[str]:
    """Return the names of the learners that support all of these features with their default settings."""
    return [name for name, able in learners() if {able.cell(feature) for feature in features} <= {"yes", "needs"}]


def _nouns(features: Set[Feature]) -> str:
    return ", ".join(sorted(feature.noun for feature in features))


def _settings(features: Set[Feature]) -> str:
    return ", ".join(sorted(feature.setting for feature in features))
