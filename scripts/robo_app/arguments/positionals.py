"""Positional options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

DATASET = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATASET")]
"""Folder of a dataset."""
