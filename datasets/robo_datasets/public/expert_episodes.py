"""Import episodes of experts as the course CS 285 of Berkeley publishes them: arrays that include the next observations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from robo_datasets.formats.recording import Actions, Foreign, Recording, foreign_array, vector_size, within
from robo_datasets.public.demonstrations import Demonstration, read_demonstrations
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ObservationSpec

ARRAYS = ("observation", "action", "reward", "next_observation", "terminal")


class ExpertEpisodes:
    """Reader of such episodes from a pickle or an npz file."""

    name = "cs285"

    def read(self, source: Path) -> Foreign:
        """Open a file of expert episodes; raises DatasetError if it is no such file."""
        try:
            episodes = read_demonstrations(source, ARRAYS)
        except ValueError as error:
            raise DatasetError(f"{source} holds no episodes.", got=error) from None
        first = episodes[0]
        low, high = within((f"episode {number}", each["action"]) for number, each in enumerate(episodes))
        return Foreign(
            lambda: _recordings(episodes),
            ObservationSpec((foreign_array("observation", first["observation"].shape[1:], first["observation"].dtype),)),
            Actions(vector_size(first["action"]), least=low, most=high),
            name=source.stem,
        )


FORMAT = ExpertEpisodes()


def _recordings(episodes: Sequence[Demonstration]) -> Iterator[Recording]:
    """Yield the episodes. All count as truncated, since `terminal` also marks an end by the time limit."""
    for number, each in enumerate(episodes):
        yield Recording(
            {"observation": np.concatenate([each["observation"], each["next_observation"][-1:]])},
            each["action"],
            each["reward"],
            terminated=False,
            truncated=True,
            name=f"number {number}",
        )
