"""Newest training episode and newest evaluation episode of a run, in the form that a film of them needs.

RUN/newest/training.npz and evaluation.npz hold seed and executed actions. A simulator repeats the episode from them in another
process, so that the training draws no picture. For an environment that cannot repeat an episode, such as a robot, the file
holds the pictures of its cameras as JPEG.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from robo_rl.errors import is_passing
from robo_rl.system.plain_files import content_of
from robo_rl.types import Array, Episode

FOLDER = "newest"
QUALITY = 85
"""Quality of the JPEG pictures, 0 to 100."""
MOST_PICTURES = 400
"""Largest number of pictures per camera; of a longer episode every second, third, ... picture is kept."""
Kind = Literal["training", "evaluation"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class NewestEpisode:
    """What a film of an episode needs: seed and executed actions, or pictures, without the observations."""

    kind: Kind
    step: int
    """Training step at which the episode ended."""
    seed: int | None
    actions: Array
    """(T, A) executed actions."""
    sources: npt.NDArray[np.int8]
    """(T,) `ActionSource` of each step."""
    episode_return: float
    success: bool | None
    stop_reason: str
    replays: bool
    """True if the environment can repeat the episode from seed and actions."""
    stride: int = 1
    """Number of steps between two kept pictures."""
    pictures: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    """Camera -> JPEG pictures, one for each `stride` steps."""

    @classmethod
    def of(cls, episode: Episode, *, kind: Kind, step: int, replays: bool) -> NewestEpisode:
        """Keep of a recorded episode what a film needs.

        Args:
            episode: The recorded episode.
            kind: "training" or "evaluation".
            step: Training step at the end of the episode.
            replays: True if the environment can repeat the episode from seed and actions. If False, pictures are kept as JPEG.
        """
        stride = max(1, -(-len(episode) // MOST_PICTURES))
        return cls(
            kind=kind,
            step=step,
            seed=episode.seed,
            actions=np.asarray(episode.actions),
            sources=np.asarray(episode.sources, np.int8),
            episode_return=episode.undiscounted_return,
            success=episode.success,
            stop_reason=episode.stop_reason,
            replays=replays,
            stride=stride,
            pictures={
                name: [_jpeg(each) for each in values[::stride]]
                for name, values in episode.observations.items()
                if not replays and values.dtype == np.uint8 and values.ndim == 4 and values.shape[-1] == 3
            },
        )

    def write(self, run: Path) -> None:
        """Write the file in the folder of a run, in place of the previous episode of its kind.

        Does nothing if the disk is full.
        """
        facts = {name: getattr(self, name) for name in _FACTS} | {"cameras": list(self.pictures)}
        arrays: dict[str, npt.NDArray[Any]] = {"actions": self.actions, "sources": self.sources}
        arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        for number, coded in enumerate(self.pictures.values()):
            arrays[f"pictures{number}"] = np.frombuffer(b"".join(coded), np.uint8)
            arrays[f"sizes{number}"] = np.asarray([len(each) for each in coded], np.int64)
        with suppress(OSError):
            (run / FOLDER).mkdir(exist_ok=True)
            draft = run / FOLDER / f"{self.kind}.new.npz"
            np.savez(draft, **arrays)  # type: ignore[arg-type]  # its stub takes allow_pickle for an array
            draft.rename(newest_file(run, self.kind))

    @classmethod
    def read(cls, file: Path) -> NewestEpisode | None:
        """Return the episode in a file, or None if there is no file or it is damaged.

        Raises:
            OSError: The file cannot be read at present.
        """
        try:
            content = content_of(file)
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                    return None  # `write` packs nothing, so that a file holds no more than its size
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                facts = json.loads(found["facts"].tobytes())
                cameras = {
                    str(name): _parts(found[f"pictures{number}"], found[f"sizes{number}"])
                    for number, name in enumerate(facts.pop("cameras"))
                }
                actions, sources = found["actions"], found["sources"].astype(np.int8)
            return cls(**{name: facts[name] for name in _FACTS}, actions=actions, sources=sources, pictures=cameras)
        except (*_DAMAGE, OSError) as error:
            if isinstance(error, OSError) and is_passing(error):
                raise
            return None


_DAMAGE = (
    *(ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError, MemoryError, ArithmeticError),
    zipfile.BadZipFile,
)
_FACTS = ("kind", "step", "seed", "episode_return", "success", "stop_reason", "replays", "stride")


def newest_file(run: Path, kind: Kind) -> Path:
    """Return the file of the newest episode of a kind."""
    return run / FOLDER / f"{kind}.npz"


def _jpeg(picture: npt.NDArray[np.uint8]) -> bytes:
    import cv2  # only where there are cameras

    _, coded = cv2.imencode(".jpg", picture[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return bytes(coded)


def _parts(content: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> list[bytes]:
    ends = np.cumsum(sizes)
    if len(sizes) and (sizes.min() < 0 or ends[-1] != len(content)):  # parts that overlap would be larger than the file
        raise ValueError("the pictures are not one after the other")
    return [content[end - size : end].tobytes() for end, size in zip(ends, sizes, strict=True)]
