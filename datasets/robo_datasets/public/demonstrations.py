"""Read demonstrations of others as arrays, from a pickle with a list of mappings, or from an npz file with the same arrays."""

from __future__ import annotations

import hashlib
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from robo_rl.errors import DatasetError
from robo_rl.system.pickled_data import arrays_in, read_pickled_data
from robo_rl.system.plain_files import content_of
from robo_rl.types import Array

Demonstration = Mapping[str, Array]
"""name -> array, such as "actions" or "init_state_dict/qpos\""""


def read_demonstrations(path: Path, names: Iterable[str]) -> list[Demonstration]:
    """Read the named arrays of each demonstration of a file.

    An npz file has names such as "07/actions". A pickle has a list of mappings; it is read as data, and no code of it is run.

    Args:
        path: The file.
        names: Names of the arrays that each demonstration must have.

    Raises:
        ValueError: The file is damaged, or a demonstration lacks an array.
    """
    if path.suffix == ".npz" or zipfile.is_zipfile(path):
        try:
            with np.load(path) as file:
                arrays = {name: file[name] for name in file.files}
        except (OSError, zipfile.BadZipFile, EOFError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
    else:
        arrays = dict(arrays_in(read_pickled_data(content_of(path))))
    found: dict[int, dict[str, Array]] = defaultdict(dict)
    for name, array in arrays.items():
        number, _, rest = name.partition("/")
        if number.isdecimal():
            found[int(number)][rest] = array
    wanted = tuple(names)
    if not found or (missing := [f"{number}/{name}" for number in found for name in wanted if name not in found[number]]):
        raise ValueError(f"no {', '.join(missing[:3]) if found else 'demonstrations'}")
    return [{name: found[number][name] for name in wanted} for number in sorted(found)]


def digest_of(demonstrations: Iterable[Demonstration]) -> str:
    """Return the SHA-256 of all arrays as float32, which is the same for a pickle and for an npz file with its arrays."""
    digest = hashlib.sha256()
    for number, demonstration in enumerate(demonstrations):
        for name in sorted(demonstration):
            values = np.ascontiguousarray(demonstration[name], "<f4")
            digest.update(f"{number}/{name} {values.shape}\n".encode())
            digest.update(values.tobytes())
    return digest.hexdigest()


def require_finite(demonstrations: Iterable[Demonstration], path: Path) -> None:
    """Raise DatasetError if a number is not finite; path: file of the demonstrations, for the error."""
    for number, demonstration in enumerate(demonstrations):
        for name, values in demonstration.items():
            if not np.isfinite(values).all():
                raise DatasetError(f"{path} holds numbers that are not finite.", got=f"{name} of demonstration {number}")
