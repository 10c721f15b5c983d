"""Read Parquet files that may be hostile: sizes are checked first, and little is unpacked at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robo_datasets.formats.lerobot_layout import arrow
from robo_datasets.formats.recording import require_file
from robo_datasets.hdf5_arrays import MOST_UNPACKED
from robo_rl.errors import DatasetError

MOST_ROWS = 100_000
"""largest number of rows of a batch"""
MOST_BYTES = 1 << 28
"""[byte] largest size of an unpacked batch"""


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Open a file inside the context, and yield a pyarrow.parquet.ParquetFile; raises DatasetError if it is damaged."""
    pa, pq = arrow()
    require_file(path)
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(
            f"{path} is not a whole Parquet file.",
            got=" ".join(str(error).split()),
            fix="copy it again; of a recording that was never ended, call LeRobotDataset.finalize() first",
        ) from error
    with file:
        yield file


def batches(path: Path, columns: Mapping[str, int]) -> Iterator[Any]:
    """Yield the rows of some columns in small batches.

    Args:
        path: The file.
        columns: Name of a column -> number of values in a row; 1 for texts and bytes.

    Raises:
        DatasetError: A column is missing, or the file declares more rows or longer lists than it can hold. Nothing is
            unpacked then.
    """
    with opened_parquet(path) as file:
        rows = min(MOST_ROWS, _rows_at_once(path, file.metadata, columns))
        if missing := set(columns) - set(file.schema_arrow.names):
            raise DatasetError(f"{path} cannot be read as lerobot: columns are missing.", got=", ".join(sorted(missing)))
        yield from file.iter_batches(rows, columns=list(columns))


def _rows_at_once(path: Path, metadata: Any, columns: Mapping[str, int]) -> int:
    """Return the number of rows of a batch that stays below MOST_BYTES; raises DatasetError as `batches` does."""
    size, width = path.stat().st_size, 8 * sum(columns.values())
    largest = 0
    for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
        for column in (group.column(index) for index in range(group.num_columns)):
            lengths = [columns[key] for key in columns if _is_of(column.path_in_schema, key)]
            if not lengths:
                continue
            if column.num_values > group.num_rows * max(lengths):
                got = f"{column.num_values} values of {column.path_in_schema} in {group.num_rows} rows"
                raise DatasetError(f"{path} holds longer lists than it may.", got=got, allowed=f"{max(lengths)} a row")
            largest = max(largest, column.total_uncompressed_size if column.physical_type == "BYTE_ARRAY" else 0)
            if column.total_uncompressed_size > MOST_UNPACKED * size:
                raise _too_much(path, f"{column.total_uncompressed_size} bytes of {column.path_in_schema}", size)
    if metadata.num_rows * width > MOST_UNPACKED * size:
        raise _too_much(path, f"{metadata.num_rows} rows of {width} bytes", size)
    return max(1, min(MOST_BYTES // width, MOST_BYTES // max(largest, 1)))  # each row may be the largest text


def _is_of(path: str, key: str) -> bool:
    return path == key or path.startswith(f"{key}.")


def _too_much(path: Path, got: str, size: int) -> DatasetError:
    return DatasetError(
        f"{path} declares more data than it can hold.",
        got=f"{got} in a file of {size}",
        allowed=f"{MOST_UNPACKED} times its size",
    )
