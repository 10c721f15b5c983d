"""One episode in one HDF5 file, with the hash of its content in its name.

    0f3c...e1.5d41402abc4b2a76.h5        identity of the episode, then the first digits of the SHA-256 of the file

    observations/<name>  (T+1, ...)      reward_terms/<name>  (T,)
    actions, policy_actions  (T, A)      rewards, sources, costs/<name>  (T,)      timestamps  (T+1,) [s]
    header               the rest as JSON in UTF-8: schema, ends, seed, instruction, spec, metadata
    packed/<camera>  (bytes,)            packed_ends/<camera>     instead of pictures that are compressed with loss

A file is written under a temporary name, made durable, and then renamed. So a file under its final name is complete.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from robo_datasets.hdf5_arrays import Array, read_arrays, write_array
from robo_datasets.packed_pictures import Packing, packed, unpacked
from robo_rl.errors import (
    DatasetError,
    DatasetNotFound,
    EpisodeCorrupt,
    InvalidEpisode,
    MissingExtra,
    RoboRLError,
    fix_of,
    is_passing,
)
from robo_rl.spec.cost import PLAIN
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.system.durable_files import write_durably
from robo_rl.types import Episode

SCHEMA = "robo_rl.episode/1"
NAME = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{16})\.h5")
LAYOUT = ("v110", "v110")
"""HDF5's file format since 2016; the older format adds 2 KB per array, which makes short episodes five times as large"""
TEMPORARY = ".tmp"
"""suffix of a file that is not complete yet"""
_OUT_OF_MEMORY = re.compile(r"memory allocation failed|[Uu]nable to allocate|can't allocate")
"""texts by which HDF5's errors of missing memory are recognised, since they have no number"""
_ARRAYS = ("actions", "policy_actions", "rewards", "sources", "timestamps")
_FACTS = ("terminated", "truncated", "stop_reason", "success", "seed", "spec_fingerprint", "instruction")


class EpisodeFile(NamedTuple):
    """Content of an episode's file: the episode, and the spec of its environment."""

    episode: Episode
    spec: EnvironmentSpec


@dataclass(frozen=True)
class FileName:
    """Name of an episode's file, which has the hash of the file's content."""

    identity: str
    """identity of the episode, 32 hex digits"""
    digest: str
    """first 16 hex digits of the SHA-256 of the file's content"""

    def __str__(self) -> str:
        return f"{self.identity}.{self.digest}.h5"

    @classmethod
    def parse(cls, name: str) -> FileName:
        """Return the parts of a name; raises EpisodeCorrupt for any other text, such as a path out of the folder."""
        match = NAME.fullmatch(name)
        if match is None:
            raise EpisodeCorrupt(f"{name!r} is no name of an episode's file.", got=name, allowed="<32 hex>.<16 hex>.h5")
        return cls(*match.groups())


def write_episode(folder: Path, identity: str, episode: Episode, spec: EnvironmentSpec, how: Packing | None = None) -> FileName:
    """Write an episode durably into a folder.

    Args:
        folder: Folder of episodes.
        identity: Identity of the episode, 32 hex digits.
        episode: The episode.
        spec: Spec of its environment.
        how: Lossy compression of its pictures; None to keep them exactly.

    Returns:
        The name of the file.

    Raises:
        InvalidEpisode: The episode does not fit the spec.
        OSError: The file cannot be written, for example because the disk is full.
    """
    name, content = encoded_episode(identity, episode, spec, how)
    place_episode(folder, name, content)
    return name


def encoded_episode(
    identity: str, episode: Episode, spec: EnvironmentSpec, how: Packing | None = None
) -> tuple[FileName, bytes | memoryview]:
    """Return name and content of an episode's file, without writing it; raises InvalidEpisode unless the spec is its own.

    The arguments are those of `write_episode`.
    """
    if episode.spec_fingerprint != spec.fingerprint:
        raise InvalidEpisode(
            "The episode was not recorded with this spec.", got=episode.spec_fingerprint, allowed=spec.fingerprint
        )
    require_fit(episode, spec)
    content = _encode(episode, spec, how)
    return FileName(identity, hashlib.sha256(content).hexdigest()[:16]), content


def store_episode(folder: Path, file: str, content: bytes) -> None:
    """Write the content of an episode's file durably; raises EpisodeCorrupt unless it has the hash in the name `file`."""
    name, content = _checked(file, content)
    place_episode(folder, name, content)


def copy_episode(path: Path, folder: Path) -> FileName:
    """Copy an episode's file into another folder, byte for byte, and return its name.

    Raises:
        EpisodeCorrupt: The file was changed after it was written.
        DatasetNotFound: There is no such file.
        OSError: The file cannot be read, or the copy cannot be written.
    """
    name, content = _content(path, path.name)
    place_episode(folder, name, content)
    return name


def place_episode(folder: Path, name: FileName, content: bytes | memoryview) -> None:
    """Write content durably to the file of this name, without a check of the hash; raises OSError if the disk is full."""
    write_durably(folder / str(name), content, draft=folder / f"{name.identity}{TEMPORARY}")


def read_episode(path: Path, name: str = "") -> EpisodeFile:
    """Read an episode's file.

    Args:
        path: The file.
        name: Name that the file had when it was written, if it was renamed since; "" for its present name.

    Returns:
        The episode and the spec of its environment.

    Raises:
        EpisodeCorrupt: A byte of the file was changed after it was written, or it is no episode.
        DatasetNotFound: There is no such file.
        DatasetError: Disk, rights or memory prevent reading now; this says nothing about the episode.
    """
    name = name or path.name
    return _read(name, lambda: _content(path, name)[1])


def episode_in(name: str, content: bytes) -> EpisodeFile:
    """Return the episode in the content of a file with this name; raises EpisodeCorrupt as `read_episode` does."""
    return _read(name, lambda: _checked(name, content)[1])


def _read(name: str, content_of: Callable[[], bytes]) -> EpisodeFile:
    try:
        content = content_of()
        with h5py.File(io.BytesIO(content), "r") as file:
            return _decode(read_arrays(file, len(content)))
    except EpisodeCorrupt as error:
        raise EpisodeCorrupt(f"Episode {name} cannot be read. {error}", fix="robo-rl data repair DATASET") from None
    except (DatasetError, MissingExtra):
        raise
    except (
        *(OSError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError),
        RoboRLError,
    ) as error:
        if is_passing(error) or _OUT_OF_MEMORY.search(str(error)):
            raise unreadable(name, error) from error
        raise EpisodeCorrupt(
            f"Episode {name} is no episode of schema {SCHEMA}.", got=f"{type(error).__name__}: {error}"
        ) from error


def unreadable(name: str, error: BaseException) -> DatasetError:
    """Return the error to raise if disk, rights or memory prevent a file from being read, which says nothing about the file."""
    fix = fix_of(error if isinstance(error, OSError) and error.errno else MemoryError())
    again = "then the same command again; a file that can never be read may be moved away by hand"
    got = " ".join(f"{type(error).__name__}: {error}".split())
    return DatasetError(f"{name} cannot be read now; nothing says that it is damaged.", got=got, fix=f"{fix}; {again}")


def _content(path: Path, name: str) -> tuple[FileName, bytes]:
    """Read a file, and return its parsed name and content; raises EpisodeCorrupt unless the content has the name's hash."""
    FileName.parse(name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise EpisodeCorrupt(f"{path.name} is not a plain file.", allowed="a file that ends")
        content = path.read_bytes()
    except FileNotFoundError:
        raise DatasetNotFound(f"There is no {path}.", fix="robo-rl data repair DATASET, if it is gone for ever") from None
    return _checked(name, content)


def _checked(text: str, content: bytes) -> tuple[FileName, bytes]:
    name = FileName.parse(text)
    if hashlib.sha256(content).hexdigest()[:16] != name.digest:
        raise EpisodeCorrupt(f"{text} was changed after it was written, or is torn.", got=f"{len(content)} bytes")
    return name, content


def _encode(episode: Episode, spec: EnvironmentSpec, how: Packing | None) -> memoryview:
    """Return the content of an episode's HDF5 file; built in memory, because HDF5 does not survive a full disk."""
    buffer, cameras = io.BytesIO(), [] if how is None else _cameras(spec)
    with h5py.File(buffer, "w", libver=LAYOUT) as file:
        for path, array in episode_arrays(episode).items():
            group, _, name = path.rpartition("/")
            if how is not None and group == "observations" and name in cameras:
                content, ends = packed(array, how)
                write_array(file.require_group("packed"), name, content)
                write_array(file.require_group("packed_ends"), name, ends)
            else:
                write_array(file.require_group(group or "/"), name, array)
        write_array(file, "header", _header(episode, spec, {} if how is None else dict.fromkeys(cameras, how.name)))
    return buffer.getbuffer()


def _cameras(spec: EnvironmentSpec) -> list[str]:
    """Return the names of the RGB observations."""
    return [name for name, array in spec.observation.items() if array.role == "image" and _is_rgb(array)]


def _is_rgb(array: ArraySpec) -> bool:
    return array.dtype == "uint8" and len(array.shape) == 3 and array.shape[-1] == 3


def episode_arrays(episode: Episode) -> dict[str, Array]:
    """Return path in the file -> array, for all arrays of an episode."""
    arrays = {name: getattr(episode, name) for name in _ARRAYS}
    arrays |= {f"costs/{name}": array for name, array in episode.costs.items()}
    arrays |= {f"observations/{name}": array for name, array in episode.observations.items()}
    return arrays | {f"reward_terms/{name}": array for name, array in episode.reward_terms.items()}


def episode_facts(episode: Episode) -> dict[str, Any]:
    """Return name -> value of an episode's fields that are not arrays, without the metadata."""
    return {name: getattr(episode, name) for name in _FACTS}


def episode_of(
    arrays: Mapping[str, Array], facts: Mapping[str, Any], metadata: Mapping[str, Any], spec: EnvironmentSpec
) -> Episode:
    """Return the episode that these parts make up; the inverse of `episode_arrays` and `episode_facts`.

    Args:
        arrays: Path in the file -> array.
        facts: Name -> value of the fields that are not arrays.
        metadata: Metadata of the episode.
        spec: Spec of the environment.

    Raises:
        EpisodeCorrupt: The facts have the fingerprint of another spec.
    """
    episode = Episode(
        observations={name: arrays[f"observations/{name}"] for name in spec.observation},
        reward_terms=_under("reward_terms/", arrays),
        costs=_under("costs/", arrays) | ({PLAIN: arrays["costs"]} if "costs" in arrays else {}),  # before costs had names
        metadata=metadata,
        actions=arrays["actions"],
        policy_actions=arrays["policy_actions"],
        rewards=arrays["rewards"],
        sources=arrays["sources"],
        timestamps=arrays["timestamps"],
        **{name: facts[name] for name in _FACTS},
    )
    if spec.fingerprint != episode.spec_fingerprint:
        raise EpisodeCorrupt("Spec and fingerprint disagree.", got=episode.spec_fingerprint, allowed=spec.fingerprint)
    return episode


def _header(episode: Episode, spec: EnvironmentSpec, packing: Mapping[str, str]) -> Array:
    facts = episode_facts(episode) | ({"packing": packing} if packing else {})
    text = json.dumps({"schema": SCHEMA, **facts, "metadata": dict(episode.metadata), "spec": spec.to_json()})
    return np.frombuffer(text.encode(), np.uint8)


def _decode(arrays: Mapping[str, Any]) -> EpisodeFile:
    header: dict[str, Any] = json.loads(arrays["header"].tobytes())
    if header["schema"] != SCHEMA:
        raise EpisodeCorrupt("The file has another schema.", got=header["schema"], allowed=SCHEMA)
    spec = EnvironmentSpec.from_json(header["spec"])
    films = {
        f"observations/{name}": unpacked(
            how,
            arrays[f"packed/{name}"],
            arrays[f"packed_ends/{name}"],
            (len(arrays["timestamps"]), *spec.observation[name].shape),
        )
        for name, how in header.get("packing", {}).items()
    }
    episode = episode_of({**arrays, **films}, header, header["metadata"], spec)
    require_fit(episode, spec)
    return EpisodeFile(episode, spec)


def require_fit(episode: Episode, spec: EnvironmentSpec) -> None:
    """Raise InvalidEpisode unless every array of an episode has the shape and type of its spec; NaN is allowed.

    Without this check NumPy would broadcast an array of another shape in a training, and nobody would notice.
    """
    if set(episode.observations) != set(spec.observation):
        raise InvalidEpisode(
            "The episode has other observations than its spec.",
            got=sorted(episode.observations),
            allowed=sorted(spec.observation),
        )
    if episode.seed is not None and not -(2**63) <= episode.seed < 2**63:
        raise InvalidEpisode("The seed does not fit into the catalogue.", got=episode.seed, allowed="64 bits")
    number, action = np.dtype(np.float32), np.dtype(spec.action.dtype)
    expected = {
        f"observations.{name}": (episode.observations[name], array.shape, np.dtype(array.dtype))
        for name, array in spec.observation.items()
    }
    expected |= {name: (getattr(episode, name), spec.action.shape, action) for name in ("actions", "policy_actions")}
    expected |= {f"reward_terms.{name}": (values, (), number) for name, values in episode.reward_terms.items()}
    expected |= {name: (getattr(episode, name), (), number) for name in ("rewards", "timestamps")}
    expected |= {"sources": (episode.sources, (), np.dtype(np.int8))}
    expected |= {f"costs.{name}": (values, (), number) for name, values in episode.costs.items()}
    wrong = [
        f"{name}: {values.dtype}{list(values.shape[1:])} a step, not {dtype}{list(shape)}"
        for name, (values, shape, dtype) in expected.items()
        if values.shape[1:] != shape or not _is_such(values.dtype, dtype)
    ]
    if wrong:
        raise InvalidEpisode("The arrays of an episode do not fit its spec.", got="; ".join(wrong))


def _is_such(found: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Return whether an array of type `found` is accepted as `wanted`: any float for a float, any signed integer for one."""
    return found == wanted or (found.kind == wanted.kind and found.kind in "fi")


def _under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {path.removeprefix(prefix): array for path, array in arrays.items() if path.startswith(prefix)}
