"""Compared segments of a dataset as arrays, for the fit of a reward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from robo_app.display.display import counted
from robo_datasets.cache import open_cache
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.preferences.preference_reward import Pairs, require_vectors
from robo_rl.types import Array, Preference

MOST = 200_000  # steps that set the scale


class Rows:
    """Reader of the observations and actions (D numbers a step) of a dataset, from its training cache."""

    def __init__(self, dataset: Dataset, entries: Sequence[Entry]) -> None:
        """Open the training cache for some episodes; raises InvalidSetting if the environment has no vectors."""
        require_vectors(dataset.spec)
        cache = open_cache(dataset, entries, partial(counted, "training cache", "episodes"))
        self._values, self._starts = cache.rows["vectors"][:, :-1], cache.rows["starts"]  # the last column is the reward
        ends = np.cumsum([entry.steps + 1 if entry.steps else 0 for entry in entries]).tolist()
        self._first = {entry.identity: end - entry.steps - 1 for entry, end in zip(entries, ends, strict=True)}

    def steps(self) -> Array:
        """Return all steps (B, D), or every n-th one so that at most about 200,000 are in memory."""
        rows = np.flatnonzero(self._starts)
        return np.array(self._values[rows[:: max(1, len(rows) // MOST)]], np.float32)

    def segment(self, place: tuple[str, int, int]) -> Array:
        """Return the L steps of a segment (L, D); raises InvalidSetting for an episode that the dataset does not have.

        place: identity of the episode, first step, and the step after the last.
        """
        identity, start, stop = place
        if identity not in self._first:
            raise InvalidSetting("A comparison is of an episode that the dataset does not have.", got=identity)
        return np.array(self._values[self._first[identity] + start : self._first[identity] + stop], np.float32)


def pairs_of(preferences: Sequence[Preference], rows: Rows) -> Pairs:
    """Return K comparisons as arrays: first and second segments (K, L, D) and labels (K,).

    Raises InvalidSetting if there are none, or if segments differ in length.
    """
    lengths = {stop - start for each in preferences for _, start, stop in (each.first, each.second)}
    if len(lengths) > 1:
        raise InvalidSetting(
            "The compared segments differ in length.", got=sorted(lengths), allowed="one length", fix="two sets"
        )
    if not preferences:
        raise InvalidSetting("No comparison can be used.", got="none that was answered", fix="robo-rl prefer")
    first, second = (np.stack([rows.segment(getattr(each, side)) for each in preferences]) for side in ("first", "second"))
    return Pairs(first, second, np.array([each.label for each in preferences], np.float32))
