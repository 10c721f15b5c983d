"""Figures of a dataset's card: number and quality of its episodes, and one hash over all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from robo_datasets.catalogue import Entry
from robo_datasets.episode_file import FileName
from robo_rl.types import ActionSource


def figures_of(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the figures of some episodes, as entries of a card.

    Returns:
        `episodes` and `steps`: their numbers. `return`: least, mean and most undiscounted return; None without an episode.
        `success`: share of successes, 0 to 1; None if no episode has a criterion. `content`: hash over all episodes.
    """
    returns = [entry.episode_return for entry in entries]
    judged = [entry.success for entry in entries if entry.success is not None]
    return {
        "episodes": len(entries),
        "steps": sum(entry.steps for entry in entries),
        "return": {"least": min(returns), "mean": fmean(returns), "most": max(returns)} if returns else None,
        "success": sum(judged) / len(judged) if judged else None,
        "content": content_hash(entries),
    }


def normalised(episode_return: float, reference: Mapping[str, Any]) -> float:
    """Return 100 (R - random) / (expert - random), the score of D4RL (Fu et al. 2020).

    Args:
        episode_return: Undiscounted return R of an episode.
        reference: Entry `reference` of a card, with the mean returns `random` and `expert`.
    """
    random, expert = float(reference["random"]), float(reference["expert"])
    return 100 * (episode_return - random) / (expert - random)


def actor_name(source: int) -> str:
    """Return the name of an ActionSource, "unknown (9)" for other numbers."""
    return ActionSource(source).name.lower() if source in {*ActionSource} else f"unknown ({source})"


def content_hash(entries: Sequence[Entry]) -> str:
    """Return the SHA-256 over the digests of the episodes' files. It changes with any byte of a file, and with their order."""
    return hashlib.sha256("".join(FileName.parse(entry.file).digest for entry in entries).encode()).hexdigest()
