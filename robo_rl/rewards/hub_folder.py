"""Folders of the library transformers: found here or downloaded once, and told apart by what they hold.

Only safetensors are read, since other weights can run code.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from robo_rl.errors import InvalidSetting, MissingExtra, RoboRLError

FILES = ("*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors")
"""Configuration, preparation of pictures, vocabulary, form of a talk, weights: all that answers follow from."""


def hub_folder(model: str, revision: str, kind: str) -> Path:
    """Returns where the files lie; a name on huggingface.co is downloaded unless it was before. kind: for the errors."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    hub = library("huggingface_hub", kind)
    try:
        return Path(hub.snapshot_download(model, revision=revision, allow_patterns=[*FILES]))
    except Exception as error:  # what a library for the network raises is without bounds
        raise InvalidSetting(
            f"There is no {kind} {model!r}, and it cannot be downloaded.",
            got=str(error).strip().splitlines()[0],
            allowed="a folder that is there, or NAME/MODEL on huggingface.co",
            fix="copy the model's folder here, or download it once where there is a network",
        ) from error


def identity_of(folder: Path) -> tuple[str, str]:
    """Returns the type that the configuration names, and a hash of all files."""
    whole, kind = hashlib.sha256(), "unknown"
    for path in sorted({path for pattern in FILES for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            whole.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    if (config := folder / "config.json").is_file():
        kind = json.loads(config.read_bytes()).get("model_type", kind)
    return kind, whole.hexdigest()[:16]


def loaded(source: str, folder: Path, kind: str, fix: str, **options: Any) -> Any:
    """Returns what `from_pretrained` of the class `source` of transformers makes of a folder; kind, fix: for the errors."""
    found = library("transformers", kind)
    try:
        return getattr(found, source).from_pretrained(folder, local_files_only=True, **options)
    except RoboRLError:
        raise
    except Exception as error:  # what a strange folder makes the library raise is without bounds
        raise InvalidSetting(
            f"The {kind} {folder} cannot be loaded.",
            got=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
            allowed=f"a folder of the library transformers: {', '.join(FILES)}",
            fix=fix,
        ) from error


def loaded_model(source: str, folder: Path, kind: str, fix: str, **options: Any) -> Any:
    """Returns a model of a folder; raises InvalidSetting where weights are missing, which would be random numbers."""
    model, report = loaded(source, folder, kind, fix, use_safetensors=True, output_loading_info=True, **options)
    if report["missing_keys"]:
        raise InvalidSetting(f"Weights of {folder} are missing.", got=", ".join(sorted(report["missing_keys"])[:5]))
    return model


def library(name: str, kind: str) -> Any:
    """Returns a library that is imported late; raises MissingExtra."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtra(f"The {kind} of transformers", name, "hf") from None
