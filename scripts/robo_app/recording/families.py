"""Families of datasets of one environment, from random to expert, after D4RL (Fu et al. 2020, arXiv:2004.07219).

A family is a plan of episodes. Each planned episode has an identity and a function that makes it, so that the same command
completes a recording that was killed. docs/data/dataset-families.md defines all families.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from robo_app.recording.actors import Actor
from robo_app.recording.family_sources import Sources
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rollout.episode import rollout
from robo_rl.types import Episode

MIXED = re.compile(r"mixed-([1-9][0-9]?)")
PLAYED = 10  # default number of episodes


class Planned(NamedTuple):
    """Episode of a family that is still to be made: its identity, and the function that makes it."""

    identity: str
    """Identity of the episode: 32 hex digits, the same whenever the same family is planned."""
    make: Callable[[], Episode]


@dataclass(frozen=True)
class Plan:
    """Plan of a family: what to record, before it is recorded."""

    how: str
    """How the episodes are made, in one sentence for the card of the dataset."""
    episodes: Sequence[Planned]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further entries for the card."""


@runtime_checkable
class Seeded(Protocol):
    """Protocol of a policy whose random actions can be made repeatable by a seed."""

    def seed(self, seed: int) -> None:
        """Reseed the generator: the following actions depend only on `seed`."""


def plan_of(family: str, sources: Sources, episodes: int | None) -> Plan:
    """Return the plan of a family.

    Args:
        family: Name of the family, such as medium-replay or mixed-30.
        sources: Environment, run and expert.
        episodes: Number of episodes; None for 10, or all if training episodes are copied.

    Raises:
        UnknownName: There is no such family.
        InvalidSetting: The sources are not enough, such as without a run.
    """
    if match := MIXED.fullmatch(family):
        return _mixed(sources, episodes or PLAYED, int(match[1]))
    if family not in FAMILIES:
        raise UnknownName("family", family, [*FAMILIES, "mixed-K"], fix="in mixed-K, K is the expert's share from 1 to 99 %")
    return FAMILIES[family](sources, episodes)


def _random(sources: Sources, episodes: int | None) -> Plan:
    return Plan("uniformly random actions", _played(sources, sources.random, episodes or PLAYED))


def _medium(sources: Sources, episodes: int | None) -> Plan:
    played = _played(sources, sources.medium_actor, episodes or PLAYED)
    if sources.is_disturbed:
        how = "the expert, with so large a share of random actions that it is a third of the way from random to expert"
        return Plan(how, played, {"medium": sources.disturbed._asdict()})
    how = "sampled actions of the first evaluated policy that reached a third of the way from random to expert"
    return Plan(how, played, {"medium": sources.medium._asdict()})


def _medium_replay(sources: Sources, episodes: int | None) -> Plan:
    copied = _copied(sources, sources.medium.step, episodes)
    how = "the run's training episodes that ended before the policy of the family medium was evaluated"
    return Plan(how, copied, {"medium": sources.medium._asdict()})


def _replay(sources: Sources, episodes: int | None) -> Plan:
    return Plan("the run's training episodes", _copied(sources, None, episodes))


def _expert(sources: Sources, episodes: int | None) -> Plan:
    played = _played(sources, sources.expert, episodes or PLAYED)
    return Plan("actions of the expert, sampled where it is a trained policy", played)


def _play(sources: Sources, episodes: int | None) -> Plan:
    motion = "Ornstein-Uhlenbeck random actions" if not sources.spec.action.is_discrete else "random actions that are held"
    turns = ", by turns with stretches of the scripted expert's actions" if sources.has_script else ""
    return Plan(f"without a task: {motion}{turns}", _played(sources, sources.wanderer, episodes or PLAYED))


def _mixed(sources: Sources, episodes: int, percent: int) -> Plan:
    experts = round(episodes * percent / 100)
    if not 0 < experts < episodes:
        raise InvalidSetting(
            "A mixture needs an episode of each kind.",
            got=f"{experts} of {episodes} from the expert",
            allowed="1 or more of each",
            fix="record more --episodes",
        )
    facts: dict[str, Any] = {"mixture": {"expert": experts, "rest": episodes - experts}}
    if sources.has_training_episodes:
        rest, kind = _copied(sources, sources.medium.step, episodes - experts), "medium-replay"
        facts["medium"] = sources.medium._asdict()
    else:
        rest, kind = _played(sources, sources.random, episodes - experts), "random"
    together = [*_played(sources, sources.expert, experts), *rest]
    order = np.random.default_rng(sources.seed).permutation(episodes)  # so that the first episodes are a mixture too
    how = f"{experts} of {episodes} episodes of the family expert, the others of the family {kind}, in random order"
    return Plan(how, [together[index] for index in order], facts)


def _played(sources: Sources, choose: Callable[[int], Actor], episodes: int) -> list[Planned]:
    """Return planned episodes that are played with successive seeds; the seed determines an episode."""

    def planned(seed: int) -> Planned:
        chosen = choose(seed)
        facts = [sources.environment_name, sources.arguments, sources.spec.fingerprint, chosen.name, sources.noise, seed]
        identity = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
        return Planned(identity, lambda: _play_one(sources, choose(seed), seed))

    return [planned(sources.seed + index) for index in range(episodes)]


def _play_one(sources: Sources, chosen: Actor, seed: int) -> Episode:
    if isinstance(chosen.policy, Seeded):
        chosen.policy.seed(seed)
    episode = rollout(sources.environment, chosen.policy, seed=seed)
    return replace(episode, metadata={**episode.metadata, "source": chosen.name})


def _copied(sources: Sources, last_step: int | None, episodes: int | None) -> list[Planned]:
    """Return planned episodes that are copied from the run's training episodes.

    last_step: only episodes that ended at this training step or before; None for all. episodes: size of a random sample; None
    for all of them, in order.
    """
    dataset = sources.training_episodes
    steps = {entry.identity: _training_step(dataset, entry) for entry in dataset.entries()}
    found = sorted(dataset.entries(), key=lambda entry: steps[entry.identity])
    found = [entry for entry in found if last_step is None or steps[entry.identity] <= last_step]
    if len(found) < (episodes or 1):
        raise InvalidSetting(
            f"{dataset.path} has too few episodes for this family.",
            got=f"{len(found)} until step {last_step}" if last_step is not None else len(found),
            allowed=f"{episodes or 1} or more",
            fix="ask for fewer --episodes, or train a run with more",
        )
    if episodes is not None:
        drawn = np.random.default_rng(sources.seed).choice(len(found), episodes, replace=False)
        found = [found[index] for index in sorted(drawn)]
    return [Planned(entry.identity, partial(dataset.read, entry)) for entry in found]


def _training_step(dataset: Dataset, entry: Entry) -> int:
    return int(dataset.read(entry).metadata["training_step"])


FAMILIES: dict[str, Callable[[Sources, int | None], Plan]] = {
    "random": _random,
    "medium": _medium,
    "medium-replay": _medium_replay,
    "replay": _replay,
    "expert": _expert,
    "play": _play,
}
