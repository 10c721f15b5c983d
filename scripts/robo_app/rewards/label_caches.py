"""Option `--cache` of commands that label, and the report of the cache."""

from __future__ import annotations

from pathlib import Path

from robo_datasets.label_cache import LabelCache
from robo_rl.system.user_cache import user_cache


def cache_of(folder: str) -> LabelCache | None:
    """Return the cache for the option `--cache`: a folder, "" for the user's cache, "none" for no cache (None)."""
    return None if folder == "none" else LabelCache(Path(folder) if folder else user_cache())


def report_cache(cache: LabelCache) -> None:
    """Print how many episodes the cache had, and how many of its labels were damaged."""
    if cache.given:
        print(f"{cache.given} episodes were in the cache {cache.path}; the model was not asked about them")
    if cache.dropped:
        print(
            f"warning: labels of {cache.dropped} episodes in {cache.path} were damaged; they were dropped and asked for again"
        )
