"""Files of a run or a dataset that are pushed, and files that must not be."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from robo_datasets.dataset import DESCRIPTION
from robo_rl.errors import InvalidSetting
from robo_rl.runs.checkpoints import Checkpoint, save_checkpoint
from robo_rl.runs.run import Run, is_run
from robo_rl.system.database import Database

Kind = Literal["run", "dataset"]
RUN_FILES = ("recipe.yaml", "spec.json", "run.json", "metrics.jsonl", "messages.jsonl", "evaluation.json", "evaluations/*.json")
RUN_FILMS = ("videos/**/*.mp4", "films/**/*.mp4")
DATASET_FILES = (DESCRIPTION, "episodes/*.h5")
DATABASES = ("catalogue.sqlite", "labels/*.sqlite", "preferences/*.sqlite")
CHECKPOINTS = "checkpoints"
MEMORIES = ("replay", "offline")
"""Parts of a checkpoint with recorded steps, which a policy does not need."""
SUFFIXES = (".json", ".jsonl", ".yaml", ".md", ".safetensors", ".h5", ".sqlite", ".mp4")
"""Allowed suffixes of pushed files; no such file can run code."""
TEXTS = (".json", ".jsonl", ".yaml", ".md")
SECRETS = re.compile(
    rb"\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bAKIA[0-9A-Z]{16}\b"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\b[Bb]earer\s+[A-Za-z0-9._-]{20,}"
)
"""Pattern of secrets: tokens of Hugging Face, OpenAI, GitHub and AWS, private keys, headers with a token."""


@dataclass(frozen=True)
class Payload:
    """Files of a run or a dataset to push."""

    kind: Kind
    name: str
    files: Mapping[str, Path]
    """Path in the payload -> file on this machine."""


def kind_of(folder: Path) -> Kind:
    """Return "run" or "dataset" for a folder; raises InvalidSetting if it is neither."""
    if is_run(folder):
        return "run"
    if (folder / DESCRIPTION).is_file():
        return "dataset"
    allowed = f"a run (recipe.yaml and spec.json) or a dataset ({DESCRIPTION})"
    raise InvalidSetting(f"{folder} is neither a run nor a dataset.", got=folder, allowed=allowed)


@contextmanager
def payload_of(folder: Path, *, resumable: bool = False) -> Iterator[Payload]:
    """Yield the files of a run or a dataset to push; databases and the checkpoint are temporary copies of those in use.

    resumable: True to include the replay memory, so that the training can be resumed. Raises InvalidSetting for a link, a file
    that could run code, and a text with a token or key.
    """
    kind = kind_of(folder)
    with TemporaryDirectory() as drafts:
        patterns = (*RUN_FILES, *RUN_FILMS) if kind == "run" else DATASET_FILES
        files = {path.relative_to(folder).as_posix(): path for pattern in patterns for path in sorted(folder.glob(pattern))}
        made = Path(drafts)
        if kind == "run":
            _copy_checkpoint(Run(folder), made, resumable=resumable)
        else:
            _copy_databases(folder, made)
        files |= {path.relative_to(made).as_posix(): path for path in sorted(made.rglob("*")) if path.is_file()}
        for name, path in files.items():
            require_harmless(name, path)
        yield Payload(kind, folder.resolve().name, files)


def _copy_checkpoint(run: Run, drafts: Path, *, resumable: bool) -> None:
    """Copy the newest checkpoint; unless `resumable` without recorded steps."""
    if not run.has_checkpoint:
        return
    step, parts = run.load()
    kept = {name: part for name, part in parts.items() if resumable or name not in MEMORIES}
    save_checkpoint(drafts / CHECKPOINTS, Checkpoint(step, kept))


def _copy_databases(folder: Path, drafts: Path) -> None:
    for pattern in DATABASES:
        for path in folder.glob(pattern):
            target = drafts / path.relative_to(folder)
            target.parent.mkdir(exist_ok=True)
            with Database(path).reading() as source:
                copied = sqlite3.connect(target)
                source.backup(copied)
                copied.close()


def require_harmless(name: str, path: Path) -> None:
    """Raise InvalidSetting for a link, a file that could run code, or a text that seems to hold a token or a key."""
    if path.is_symlink() or not path.is_file():
        raise InvalidSetting(f"{name} is no plain file; it does not travel.", got=path, fix="replace the link by its target")
    if path.suffix not in SUFFIXES:
        allowed = f"files that cannot run code: {', '.join(SUFFIXES)}"
        raise InvalidSetting(f"{name} does not travel.", got=path.suffix or "no suffix", allowed=allowed)
    if path.suffix in TEXTS and (found := SECRETS.search(path.read_bytes())):
        shown = f"{found[0][:6].decode(errors='replace')}… at byte {found.start()}"
        raise InvalidSetting(
            f"{name} holds what looks like a token or a key; nothing was sent.",
            got=shown,
            fix="remove it from the file, and revoke the token if it was shown to anybody",
        )
