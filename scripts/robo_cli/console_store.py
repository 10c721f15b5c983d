"""Where the console keeps episodes: a dataset, whose journal has every step until the episode is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from robo_datasets.dataset import Dataset
from robo_datasets.journal import Journal
from robo_datasets.repair import repair
from robo_real.console.episodes import Store
from robo_rl.rollout import Rollout
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Transition


class DatasetStore(Store):
    """Adds episodes to one dataset; holds its lock while it is entered."""

    def __init__(self, dataset: Dataset, source: str) -> None:
        """source: who acts while the person does not."""
        self._writer, self._source = dataset.writer(), source
        self._journal: Journal | None = None

    def __enter__(self) -> Self:
        self._writer.__enter__()
        repair(self._writer, thorough=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._journal is not None:  # an episode that was broken off: the next repair has what there is of it
            self._journal.close()
        self._writer.__exit__(kind, error, trace)

    @override
    def begin(self, rollout: Rollout) -> None:
        if self._journal is not None:
            self._journal.close()
        self._journal = self._writer.journal().__enter__()
        self._journal.begin(rollout.observation, seed=rollout.seed, instruction=rollout.instruction, source=self._source)

    @override
    def step(self, transition: Transition) -> None:
        if self._journal is not None:
            self._journal.step(transition)

    @override
    def end(self, rollout: Rollout | None) -> None:
        """Stores the episode, or drops it where the operator discarded it."""
        journal, self._journal = self._journal, None
        if journal is None:
            return
        if rollout is not None:
            episode = rollout.episode()
            metadata = {**episode.metadata, "source": self._source}
            self._writer.add(replace(episode, metadata=metadata), identity=journal.path.stem)
        journal.close()
        journal.remove()


def dataset_of(path: Path, spec: EnvironmentSpec, card: dict[str, Any]) -> Dataset:
    """Returns the dataset, made where there is none; raises SpecMismatch for one of another robot."""
    if not path.exists():
        return Dataset.create(path, spec, card)
    dataset = Dataset(path)
    dataset.spec.require(spec, what="The dataset was recorded on another robot")
    return dataset
