"""Remarks on intact episodes whose data look wrong: time stamps, repeated pictures, rewards, ranges of actions."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from robo_datasets.dataset import Dataset
from robo_rl.errors import RoboRLError
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode

IMPORTED = "imported"
"""key in the metadata of an imported episode, whose value says what its file lacked; also the beginning of its `source`"""
NO_CLOCK = "robot"
"""prefix of the names of environments in real time; the recorded times of a simulation only show its speed"""
OFF_RATE = 0.1
"""share by which the median duration of a step may differ from the control period"""
GAP = 1.5
"""Longest normal step, in control periods; a longer one was late, or rows of the recording are missing."""
HALF = 0.05
"""distance by which an action in [-1, 1] may pass the middle and still count as using only half of its range"""
USED = 0.25
"""smallest difference between the least and the greatest value of an action in [-1, 1] for a remark on its range"""
MOST_NAMED = 3
"""largest number of actions that a remark names"""
MOST_READ = 3
"""largest number of episodes that `glance` reads"""


class Remarks:
    """Collector of remarks on the episodes of one dataset, which are added one after the other."""

    def __init__(self, spec: EnvironmentSpec, *, is_simulated: bool) -> None:
        """Create a collector.

        Args:
            spec: Spec of the environment.
            is_simulated: True if the episodes were recorded in a simulation, whose time stamps are not checked.
        """
        self._spec, self._is_simulated = spec, is_simulated
        self.episodes = self._steps = 0
        self._counts: Counter[str] = Counter()
        self._periods: list[float] = []
        self._gaps: list[float] = []
        self._pictures: dict[str, list[int]] = {}
        self._digests: set[bytes] = set()
        self._foreign_actions: list[tuple[Array, Array]] = []

    def add(self, episode: Episode) -> None:
        """Look for faults in the next episode, such as rewards that are not finite, and add them to the remarks."""
        self.episodes += 1
        self._steps += len(episode)
        if wrong := int((~np.isfinite(episode.rewards)).sum()):
            self._counts.update({"wrong rewards": wrong, "wrongly rewarded": 1})
        is_foreign = str(episode.metadata.get("source", "")).startswith(f"{IMPORTED}:")
        changes: dict[str, Any] = episode.metadata.get(IMPORTED, {}) if is_foreign else {}
        if changes.get("timestamps") != "missing" and (is_foreign or not self._is_simulated):
            self._add_times(np.asarray(episode.timestamps))
        for name in self._spec.observation.subset("image"):
            pictures = episode.observations[name]
            seen = pictures[:-1] if changes.get("final_observation") == "repeated" else pictures
            counts = self._pictures.setdefault(name, [0, 0])
            counts[0] += sum(np.array_equal(one, other) for one, other in pairwise(seen))
            counts[1] += len(seen) - 1
        digest = _digest(episode)
        self._counts["repeated"] += digest in self._digests
        self._digests.add(digest)
        if is_foreign and not self._spec.action.is_discrete and len(episode):
            self._foreign_actions.append((episode.actions.min(0), episode.actions.max(0)))
            self._counts["clipped"] += int((episode.actions != episode.policy_actions).any(axis=1).sum())

    def lines(self) -> list[str]:
        """Return a line for each remark on the episodes so far."""
        counts = self._counts
        found = [
            *self._lines_of_time(),
            *(
                f"{name}: {same} of {pairs} pictures equal the one before"
                for name, (same, pairs) in self._pictures.items()
                if same
            ),
        ]
        if counts["wrong rewards"]:
            what = f"rewards are not finite in {counts['wrong rewards']} steps"
            found.append(f"{what}: {self._share(counts['wrongly rewarded'])}")
        if counts["repeated"]:
            found.append(f"equal to an earlier episode in all but pictures: {self._share(counts['repeated'])}")
        if counts["clipped"]:
            share = counts["clipped"] / self._steps
            found.append(
                f"actions beyond [-1, 1] are clipped in {share:.0%} of the steps, and kept as proposed (policy_actions)"
            )
        return [*found, *self._halves()]

    def _add_times(self, times: Array) -> None:
        period = self._spec.action.control_period
        if period is None or len(times) < 2:
            return
        apart = np.diff(times)
        if not (apart > 0).all():
            self._counts["falling"] += 1
        elif abs(float(np.median(apart)) / period - 1) > OFF_RATE:
            self._periods.append(float(np.median(apart)))
        elif (late := apart[apart > GAP * period]).size:
            self._counts["late"] += 1
            self._gaps += late.tolist()

    def _lines_of_time(self) -> list[str]:
        period, found = self._spec.action.control_period, []
        if self._counts["falling"]:
            found.append(f"time stamps do not rise: {self._share(self._counts['falling'])}")
        if self._periods:
            apart = f"steps {median(self._periods):.3g} s apart, control period {period:.3g} s"
            found.append(f"{apart}: {self._share(len(self._periods))}")
        if self._gaps:
            longest = f"the longest {max(self._gaps):.3g} s, control period {period:.3g} s"
            found.append(
                f"{len(self._gaps)} steps are late, or rows are missing: {longest}: {self._share(self._counts['late'])}"
            )
        return found

    def _halves(self) -> list[str]:
        """Return a remark on the actions of imported episodes that use only one half of their range."""
        if not self._foreign_actions:
            return []
        least = np.min([low for low, _ in self._foreign_actions], axis=0)
        most = np.max([high for _, high in self._foreign_actions], axis=0)
        found = [
            f"{name} {low:.3g} to {high:.3g}"
            for name, low, high in zip(self._spec.action.names, least, most, strict=True)
            if (low >= -HALF or high <= HALF) and high - low >= USED
        ]
        named = ", ".join(found[:MOST_NAMED]) + (", ..." if len(found) > MOST_NAMED else "")
        what = f"{len(found)} of {len(least)} actions use half of their range [-1, 1]: {named}"
        return [f"{what}; of another scale? --action-ranges NAME LOW HIGH"] if found else []

    def _share(self, count: int) -> str:
        return f"{count} of {self.episodes} episodes"


def remarks_for(dataset: Dataset) -> Remarks:
    """Return an empty collector of remarks on the episodes of a dataset."""
    made_in = str(dataset.card.get("environment") or NO_CLOCK)
    return Remarks(dataset.spec, is_simulated=not made_in.startswith(NO_CLOCK))


def glance(dataset: Dataset) -> list[str]:
    """Return the remarks in the card of a dataset. If it has none, read a few episodes, and return the remarks on these.

    Episodes that cannot be read are left out.
    """
    if isinstance(kept := dataset.card.get("remarks"), list):
        return [str(line) for line in kept]
    remarks, entries = remarks_for(dataset), dataset.entries()
    for entry in entries[:: max(1, -(-len(entries) // MOST_READ))]:
        try:
            remarks.add(dataset.read(entry))
        except (RoboRLError, OSError, KeyError, ValueError):
            continue  # `verify` names it
    return [f"{line} (of {len(entries)}, {remarks.episodes} were read)" for line in remarks.lines()]


def _digest(episode: Episode) -> bytes:
    """Return the SHA-256 of an episode's actions, rewards, and observations without pictures."""
    content = hashlib.sha256()
    arrays = {name: values for name, values in episode.observations.items() if values.ndim < 4}
    for name, values in {**arrays, "/actions": episode.actions, "/rewards": episode.rewards}.items():
        content.update(f"{name} {values.dtype} {values.shape}\n".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.digest()
