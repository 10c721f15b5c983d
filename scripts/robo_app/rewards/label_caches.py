"""Cache of labels, as a command names and reports it."""

from __future__ import annotations

from pathlib import Path

from robo_datasets.label_cache import LabelCache
from robo_rl.system.user_cache import user_cache


def cache_of(folder: str) -> LabelCache | None:
    """Return the cache of the command line."""
    return None if folder == "none" else LabelCache(Path(folder) if folder else user_cache())


def report_cache(cache: LabelCache) -> None:
    """Print the statistics of a cache."""
    if cache.given:
        print(f"{cache.given} episodes were in the cache {cache.path}; the model was not asked about them")
    if cache.dropped:
        print(
            f"warning: labels of {cache.dropped} episodes in {cache.path} were damaged; they were dropped and asked for again"
        )
