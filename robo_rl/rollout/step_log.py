"""Log of all steps of a training on disk, in order: one process writes it, another one learns from it.

The log is a folder with one journal per episode, named by the numbers of its first step and of the episode. A step is durable
once `StepLog.step` has returned. There is one writer and one reader; each may die and continue later.
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
    """Numbers of an episode's first step and of the episode, which identify it in the log and name its journal."""

    step: int
    """Number of the training step with which the episode begins, from 0."""
    episode: int
    """Number of the episode, from 0."""

    @classmethod
    def of(cls, path: Path) -> Key:
        """Return the key from the path of a journal; the inverse of `stem`."""
        step, episode = path.stem.split("-")
        return cls(int(step), int(episode))

    @property
    def stem(self) -> str:
        """File name of the journal without its suffix."""
        return f"{self.step:010d}-{self.episode:08d}"


class StepLog:
    """Writer of the log of all steps; continues after the last complete step that an earlier process wrote."""

    def __init__(self, folder: Path, spec: EnvironmentSpec, step: int = 0) -> None:
        """Open the log.

        Args:
            folder: Folder of the log.
            spec: Spec of the environment.
            step: Step of the checkpoint. New steps are numbered from it if a power failure removed later ones from the log.
        """
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
        """Close the journal of the episode before, and begin one for the next episode."""
        self.close()
        self._journal = Journal(self._folder, Key(self.steps, self.episodes).stem, self._spec)
        self._journal.begin(observation, seed=seed, instruction=instruction, source=source)
        self.episodes += 1

    def step(self, transition: Transition) -> None:
        """Write a step durably; raises DatasetError if the disk is full."""
        assert self._journal is not None, "begin comes before step"
        self._journal.step(transition)
        self.steps += 1

    def since(self, step: int) -> Iterator[EpisodeStart | Transition]:
        """Yield the starts of episodes and the steps from number `step` on, including those of earlier processes."""
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
    """Start of an episode as read from the log. If the episode before it has no end, that episode was cut."""

    observation: Observation
    instruction: str | None


class StepReader:
    """Reader of the log of all steps, which returns one record after another as they are written."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        """Start after step number `step`; episodes before it may have been removed by `forget`."""
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
        """Newest observation that was read."""
        return self._observation

    def following(self) -> EpisodeStart | Transition | None:
        """Return the next start of an episode or the next step; None if it is not written yet."""
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
        """Delete the journals of episodes that ended before step `step`; no reader can start before that step any more."""
        for key, following in itertools.pairwise(_keys(self._folder)):
            if following.step < step:
                _path(self._folder, key).unlink()

    def close(self) -> None:
        """Close the open journal."""
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
