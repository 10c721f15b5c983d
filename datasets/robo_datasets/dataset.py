"""A dataset: a folder of episodes of one environment spec. Any number of processes may read it, one at a time may write.

DATASET/dataset.json      schema, spec, card (see `Dataset.card`), and a checksum over them
catalogue.sqlite  list of the episodes; can be rebuilt from the episodes' files
episodes/         one file each (robo_datasets.episode_file)
journal/          steps of the episode that is being recorded
labels/           rewards by models, one file per set (robo_datasets.labels)
preferences/      comparisons of segments, one file per set (robo_datasets.preferences)
quarantine/       unreadable files; nothing is ever deleted
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from robo_datasets.atomic_write import atomic_write
from robo_datasets.catalogue import Catalogue, Entry
from robo_datasets.episode_file import copy_episode, read_episode, store_episode, write_episode
from robo_datasets.packed_pictures import EXACT, packing
from robo_datasets.recorded_environment import environment_as_recorded
from robo_rl.errors import DatasetBusy, DatasetError, DatasetNotFound, RoboRLError, fix_of
from robo_rl.rollout.journal import Journal
from robo_rl.runs.run import write_text
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.durable_files import exclusive_lock
from robo_rl.types import ActionSource, Episode

SCHEMA = "robo_rl.dataset/1"
DESCRIPTION = "dataset.json"
CHECKSUM = "sha256"
IMAGINED = "imagined"
"""Key in the card of a dataset with steps that a learned world imagined."""
FOLDERS = ("episodes", "journal", "labels", "preferences", "quarantine")


class Dataset:
    """A dataset that is open for reading. Each episode that is read is checked against its hash."""

    def __init__(self, path: Path) -> None:
        """Open the dataset in the folder `path`.

        Raises:
            DatasetNotFound: The folder is no dataset.
            DatasetError: The dataset has another schema, or its description is damaged or was changed.
        """
        self.path = path
        self._description = _describe(path)
        self.spec = _spec_of(path, self._description)
        _require_as_written(path, self._description)
        self.catalogue = Catalogue(path)
        self.packing = packing(str(self._description["card"].get("pictures", EXACT)))

    @classmethod
    def create(cls, path: Path, spec: EnvironmentSpec, card: Mapping[str, Any] | None = None) -> Dataset:
        """Make an empty dataset, and open it.

        The folder appears under its name only when the dataset is complete, unless an empty folder of this name exists already,
        for example as a mounted disk.

        Args:
            path: Folder of the dataset; it must not exist, or be empty.
            spec: Spec of the environment.
            card: Origin of the dataset, see the property `card`.

        Raises:
            DatasetError: The folder is not empty.
        """
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise DatasetError(f"{path} is not empty.", fix="name a new folder, or add to it with --append")
        with nullcontext(path) if path.exists() else atomic_write(path) as made:
            for folder in FOLDERS:
                (made / folder).mkdir(parents=True, exist_ok=True)
            Catalogue(made).create()
            description = {"schema": SCHEMA, "spec": spec.single.to_json(), "card": dict(card or {})}
            _write_description(made, description)  # last: a folder without it is no dataset
        return cls(path)

    @property
    def card(self) -> dict[str, Any]:
        """Card of the dataset: where it comes from, such as environment, its arguments, policy, versions and figures."""
        return card_as_recorded(self._description["card"])

    def describe(self, card: Mapping[str, Any]) -> None:
        """Replace the card; a reader sees the old card or the new one, never a part."""
        self._description |= {"card": dict(card)}
        _write_description(self.path, self._description)

    def entries(self) -> list[Entry]:
        """Return the catalogue's entries of all episodes, in the order in which they were added."""
        return self.catalogue.entries()

    def read(self, entry: Entry) -> Episode:
        """Read the episode of an entry.

        Raises:
            EpisodeCorrupt: The file is torn, or was changed after it was written.
            SpecMismatch: The episode is of another environment than the dataset.
            DatasetNotFound: The file is missing.
        """
        found = read_episode(self.path / "episodes" / entry.file)
        self.spec.require(found.spec, what=f"Episode {entry.file} is of another environment than the dataset")
        return found.episode

    def __len__(self) -> int:
        return len(self.entries())

    def __iter__(self) -> Iterator[Episode]:
        return (self.read(entry) for entry in self.entries())

    def writer(self) -> DatasetWriter:
        """Return a writer of this dataset, which locks the dataset inside a `with` block."""
        return DatasetWriter(self)


def dataset_lock(path: Path, name: str, busy: DatasetBusy) -> IO[bytes]:
    """Take a lock of a dataset.

    Args:
        path: Folder of the dataset.
        name: Name of the lock's file in the folder.
        busy: Error to raise if another process holds the lock.

    Returns:
        The lock, which is held until it is closed.

    Raises:
        DatasetBusy: `busy`.
        DatasetError: The folder cannot be written to.
    """
    try:
        return exclusive_lock(path / name, busy)
    except OSError as error:
        raise DatasetError(f"{path} cannot be written to.", got=error, fix="look at its permissions, or copy it") from None


class DatasetWriter:
    """Writer that adds episodes to a dataset.

    Inside its `with` block it holds the lock of the dataset, so that two processes never write at once.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Take the lock; raises DatasetBusy while another process holds it, DatasetError if the folder cannot be written to."""
        path = self.dataset.path
        require_no_links(path)
        busy = DatasetBusy(f"Another process is writing {path}.", fix="wait for it, or record into another folder")
        self._lock = dataset_lock(path, "lock", busy)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._lock is not None:
            self._lock.close()
        self._lock = None

    def add(self, episode: Episode, identity: str | None = None) -> Entry:
        """Store an episode durably: write its file, and add it to the catalogue.

        Args:
            episode: The episode.
            identity: Identity of the episode, 32 hex digits; None for a new random one.

        Returns:
            The new entry of the catalogue.

        Raises:
            InvalidEpisode: The episode does not fit the spec of the dataset.
            DatasetError: The file cannot be written; nothing of the episode is then visible.
        """
        with self._written() as folder:
            file = write_episode(folder, identity or new_identity(), episode, self.dataset.spec, self.dataset.packing)
        self._mark(episode)
        return self.adopt(Entry.of(episode, file, (folder / str(file)).stat().st_size))

    def copy(self, source: Dataset, entry: Entry) -> Entry:
        """Copy the file of an episode from another dataset of the same spec, byte for byte, and return its new entry.

        Pictures that are compressed with loss are not compressed a second time.
        """
        episode = source.read(entry)
        with self._written() as folder:
            file = copy_episode(source.path / "episodes" / entry.file, folder)
        self._mark(episode)
        return self.adopt(Entry.of(episode, file, (folder / str(file)).stat().st_size))

    def _mark(self, episode: Episode) -> None:
        """Say in the card that the dataset has imagined steps, before the first episode with such steps is visible."""
        if IMAGINED not in self.dataset.card and (episode.sources == ActionSource.IMAGINED).any():
            told = "a learned world imagined steps: robo-rl data stats counts them"
            self.dataset.describe(self.dataset.card | {IMAGINED: told})

    def store(self, entry: Entry, content: bytes) -> Entry:
        """Store the content of an episode's file; raises EpisodeCorrupt unless the content has the hash in the file's name."""
        with self._written() as folder:
            store_episode(folder, entry.file, content)
        return self.adopt(entry)

    @contextmanager
    def _written(self) -> Iterator[Path]:
        """Yield the dataset's folder `episodes`; an OSError in the block becomes a DatasetError with a remedy."""
        folder = self.dataset.path / "episodes"
        try:
            yield folder
        except OSError as error:
            raise DatasetError(
                f"The episode could not be written to {folder}; nothing of it is visible.", got=error, fix=fix_of(error)
            ) from error

    def adopt(self, entry: Entry) -> Entry:
        """Add an episode to the catalogue, whose file is already in the folder of episodes."""
        self.dataset.catalogue.add(entry)
        return entry

    def journal(self, spec: EnvironmentSpec) -> Journal:
        """Return a new journal for the steps of an episode.

        Its file name is the identity under which the finished episode must be stored.
        """
        return Journal(self.dataset.path / "journal", new_identity(), spec)


def new_identity() -> str:
    """Return a new identity of an episode: 32 random hex digits."""
    return uuid.uuid4().hex


def _describe(path: Path) -> dict[str, Any]:
    file = path / DESCRIPTION
    if not file.is_file():
        own = path / "episodes"
        fix = "robo-rl record ENV --out DATASET makes one"
        if (own / DESCRIPTION).is_file():
            fix = f"the episodes of this run are {own}"
        elif path.exists():
            fix = f"robo-rl data convert {path} --out DATASET reads other formats; {fix}"
        raise DatasetNotFound(
            f"{path} is not a dataset.", got=f"no {DESCRIPTION}" if path.is_dir() else "no such folder", fix=fix
        )
    try:
        description: Any = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{file} cannot be read.", got=error) from error
    if not isinstance(description, dict):
        raise DatasetError(f"{file} does not describe a dataset.", got=type(description).__name__, allowed="an object")
    if description.get("schema") != SCHEMA:
        raise DatasetError(f"{path} has another schema.", got=description.get("schema"), allowed=SCHEMA)
    if wrong := _faults_of_card(description.get("card")):
        raise DatasetError(f"The card in {file} is damaged.", got=wrong, allowed="a card as `robo-rl data info` prints it")
    return description


def _write_description(path: Path, description: Mapping[str, Any]) -> None:
    sealed = {**description, CHECKSUM: _checksum(json.loads(json.dumps(description)))}
    write_text(path / DESCRIPTION, json.dumps(sealed, indent=1))


def _require_as_written(path: Path, description: Mapping[str, Any]) -> None:
    """Raise DatasetError if a description has a wrong checksum; one without a checksum, of an older version, passes."""
    if description.get(CHECKSUM) not in (None, _checksum(description)):
        raise DatasetError(
            f"{path / DESCRIPTION} was changed after it was written.",
            allowed="the card and the spec with which the episodes were recorded",
            fix=f'undo the change; if it is meant to be, remove the line "{CHECKSUM}" from the file',
        )


def _checksum(description: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a description without its checksum."""
    covered = {name: value for name, value in description.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _spec_of(path: Path, description: Mapping[str, Any]) -> EnvironmentSpec:
    try:
        return EnvironmentSpec.from_json(description["spec"])
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RoboRLError) as error:
        raise DatasetError(f"{path / DESCRIPTION} holds no spec.", got=f"{type(error).__name__}: {error}") from error


def card_as_recorded(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return a card with the environment's name and arguments in the present format; those of older versions are converted."""
    if not isinstance(card.get("environment"), str):
        return dict(card)
    name, arguments = environment_as_recorded(card["environment"], card.get("arguments") or {})
    return {**card, "environment": name, **({"arguments": arguments} if "arguments" in card or arguments else {})}


def _faults_of_card(card: object) -> str | None:
    """Return the first fault in the keys of a card that readers rely on, None if there is none."""
    if not isinstance(card, dict):
        return f"card: {type(card).__name__}"
    if not isinstance(card.get("arguments", {}), dict):
        return f"arguments: {card['arguments']}"
    reference = card.get("reference", {})
    if not isinstance(reference, dict):
        return f"reference: {reference}"
    scores = [reference[name] for name in ("random", "expert") if name in reference]
    return None if all(isinstance(score, int | float) for score in scores) else f"reference: {reference}"


def require_no_links(path: Path) -> None:
    """Raise DatasetError if a dataset has a link, which could lead writes out of its folder, or a pipe in place of a file."""
    lists = [path / "lock", path / "quarantine" / "entries.jsonl"]
    found = [*path.iterdir(), *(path / "labels").glob("*"), *lists]
    if links := [entry for entry in found if entry.is_symlink()]:
        raise DatasetError(
            f"{links[0]} is a link; nothing is written through it.",
            allowed="files and folders in the dataset itself",
            fix="replace it by its target, or leave the dataset as it is and copy its episodes: robo-rl data filter",
        )
    if pipes := [entry for entry in lists if entry.exists() and not entry.is_file()]:
        raise DatasetError(f"{pipes[0]} is not a plain file.", fix="move it away: it is made again when it is needed")
