"""Log of every step of a training, in order, on disk: one process writes, another learns from it.

A folder of journals, one for each episode, named by the numbers of its first step and of the episode. A step is durable
once `step` has returned. One process writes, one reads; each may die and resume.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from robo_rl.rollout.journal import COLUMNS, SUFFIX, Journal, Record, read_record, records
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.system.plain_files import require_plain
from robo_rl.types import ActionSource, Transition


class Key(NamedTuple):
    """Key of an episode in the log, from which its journal is named."""

    step: int
    """Number of the training step with which the episode begins."""
    episode: int
    """Number of the episode."""

    @classmethod
    def of(cls, path: Path) -> Key:
        """Return the key of a journal's path; the inverse of `stem`."""
        step, episode = path.stem.split("-")
        return cls(int(step), int(episode))

    @property
    def stem(self) -> str:
        """File name of the episode's journal, without the ending."""
        return f"{self.step:010d}-{self.episode:08d}"


class StepLog:
    """Writer of the log; continues after the last whole step of an earlier process."""

    def __init__(self, folder: Path, spec: EnvironmentSpec, step: int = 0) -> None:
        """step: number of the checkpoint's step: new steps count from it if a power cut took later ones from the log."""
        self._folder, self._spec = folder, spec
        folder.mkdir(parents=True, exist_ok=True)
        self.steps, self.episodes = step, 0
        """Numbers of whole steps, and of started episodes, so far."""
        if keys := _keys(folder):
            last = keys[-1]
            self.steps = max(step, last.step + sum(1 for _ in itertools.islice(records(_path(folder, last)), 1, None)))
            self.episodes = last.episode + 1
        self._journal: Journal | None = None

    def begin(self, observation: Observation, *, seed: int | None, instruction: str | None, source: str = "training") -> None:
        """Begin the journal of an episode, and close that of the episode before."""
        self.close()
        self._journal = Journal(self._folder, Key(self.steps, self.episodes).stem, self._spec)
        self._journal.begin(observation, seed=seed, instruction=instruction, source=source)
        self.episodes += 1

    def step(self, transition: Transition) -> None:
        """Write a step durably: once this returns, it is not lost. Raises DatasetError if the disk is full."""
        assert self._journal is not None, "begin comes before step"
        self._journal.step(transition)
        self.steps += 1

    def since(self, step: int) -> Iterator[EpisodeStart | Transition]:
        """Yield starts of episodes and steps, from number `step` on, also those that earlier processes wrote."""
        reader = StepReader(self._folder, step)
        while (found := reader.following()) is not None:
            yield found
        reader.close()

    def close(self) -> None:
        """Close the journal of the running episode."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None


@dataclass(frozen=True)
class EpisodeStart:
    """Start of an episode in the log. An episode before it that has not ended was cut short."""

    observation: Observation
    instruction: str | None


class StepReader:
    """Reader of the log: returns the records since a step, or None until the next one is written."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        """Continue after step number `step`, which must not have been forgotten."""
        self._folder = folder
        self.step = step
        """Steps that were read, those before the reader began included."""
        self._key: Key | None = None
        self._file: BinaryIO | None = None
        self._observation: Observation = {}
        self.instruction: str | None = None
        """Instruction of the episode that is read."""
        earlier = [key for key in _keys(folder) if key.step < step]
        if earlier:
            self._open(earlier[-1])
            for _ in range(step - earlier[-1].step):
                if (record := self._read()) is not None:
                    self._observation = record.observation

    @property
    def observation(self) -> Observation:
        """The newest that was read."""
        return self._observation

    def following(self) -> EpisodeStart | Transition | None:
        """Return the next record, None if it is not written yet."""
        record = self._read()
        if record is None:
            after = self._after()
            record = self._read()  # once more: only the start of the next episode proves that this one is complete
            if record is None:
                return None if after is None else self._open(after)
        transition = _transition(self._observation, record)
        self._observation = transition.next_observation
        self.step += 1
        return transition

    def newest(self, count: int) -> list[Transition]:
        """Return the last `count` steps that were read of the present episode."""
        if not count or self._key is None:
            return []
        read = list(itertools.islice(records(_path(self._folder, self._key)), self.step - self._key.step + 1))
        pairs = list(itertools.pairwise(read))[-count:]
        return [_transition(before.observation, record) for before, record in pairs]

    def forget(self, step: int) -> None:
        """Remove the episodes that ended before that step; no reader resumes from them."""
        for key, following in itertools.pairwise(_keys(self._folder)):
            if following.step < step:
                _path(self._folder, key).unlink()

    def close(self) -> None:
        """End reading."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _after(self) -> Key | None:
        later = [key for key in _keys(self._folder) if self._key is None or key > self._key]
        return later[0] if later else None

    def _open(self, key: Key) -> EpisodeStart | Transition | None:
        self.close()
        require_plain(_path(self._folder, key))
        file = _path(self._folder, key).open("rb")
        record = read_record(file)
        if record is None:  # its first record is being written, or never was
            file.close()
            if any(later > key for later in _keys(self._folder)):
                self._key = key
                return self.following()
            return None
        self._key, self._file = key, file
        self._observation, self.instruction = record.observation, record.facts["instruction"]
        return EpisodeStart(self._observation, self.instruction)

    def _read(self) -> Record | None:
        return None if self._file is None else read_record(self._file)


def _keys(folder: Path) -> list[Key]:
    return sorted(Key.of(path) for path in folder.glob(f"*{SUFFIX}"))


def _path(folder: Path, key: Key) -> Path:
    return folder / f"{key.stem}{SUFFIX}"


def _transition(before: Observation, record: Record) -> Transition:
    facts = record.facts
    info = {name: facts[name] for name in ("stop_reason", "success") if facts[name] is not None}
    return Transition(
        observation=before,
        action=record.arrays["action"],
        reward=facts["reward"],
        next_observation=record.observation,
        terminated=facts["terminated"],
        truncated=facts["truncated"],
        policy_action=record.arrays["policy_action"],
        source=ActionSource(facts["source"]),
        info=info | {"reward_terms": facts["reward_terms"]},
        columns=record.having(COLUMNS),
    )
