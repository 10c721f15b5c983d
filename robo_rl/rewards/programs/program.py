"""A reward program: `reward(batch)` over named numpy columns of N rows, which returns a total and its terms.

    def reward(batch):
        distance = np.linalg.norm(batch["cube_position"] - batch["goal"], axis=1)
        effort = np.sum(batch["action"] ** 2, axis=1)
        return -distance - 0.01 * effort, {"distance": -distance, "effort": -0.01 * effort}

Reading one runs nothing of it; robo_rl.rewards.programs.sandbox runs it, in a process of its own.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robo_rl.errors import InvalidProgram
from robo_rl.rewards.programs.extraction import extracted
from robo_rl.rewards.programs.grammar import parsed, translated
from robo_rl.rewards.programs.refusals import large, printable


@dataclass(frozen=True)
class RewardProgram:
    """A program that keeps to the grammar; made by `parse` or `read`."""

    source: str
    """As it was written, without the prose around it."""
    code: str
    """What is run: the same by listed functions only (robo_rl.rewards.programs.grammar)."""
    terms: tuple[str, ...]
    """Names of the terms, in the order in which it returns them."""
    columns: tuple[str, ...]
    """Names of the columns that it reads."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from, such as the model, the prompt's hash, the program it improves; JSON values."""
    lines: Mapping[int, int] = field(default_factory=dict, repr=False, compare=False)
    """Line of `code` -> line of `source`."""

    @property
    def hash(self) -> str:
        """sha256 of the syntax that is run: spelling, comments, docstrings and annotations do not count."""
        return hashlib.sha256("\n".join([self.code, *self.terms]).encode()).hexdigest()

    @classmethod
    def parse(
        cls, text: str, columns: Collection[str] | None = None, *, provenance: Mapping[str, Any] | None = None
    ) -> RewardProgram:
        """Returns the one program in a text, bare or in one fenced block among prose; InvalidProgram where there is none.

        `columns` are the names that a batch will have; None where that is not known, then any name passes.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python about the text, such as "\d"
            source = extracted(text)
            translation = translated(parsed(source), columns)
        try:
            code = ast.unparse(translation.tree)
            lines = _matched(translation.tree, code)
        except (RecursionError, SyntaxError):  # called from deep down; more parentheses than in the text
            large("deep nesting", "ordinary nesting")
        return cls(source, code, translation.terms, translation.columns, dict(provenance or {}), lines)

    def save(self, path: Path | str) -> Path:
        """Write the program to `path` (a folder: to HASH.py in it), its provenance beside it as .json; returns the .py file."""
        path = Path(path)
        path = path / f"{self.hash[:12]}.py" if path.suffix != ".py" else path
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"hash": self.hash, "terms": self.terms, "columns": self.columns, "provenance": self.provenance}
        path.write_text(self.source + "\n", encoding="utf-8")
        path.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path | str, columns: Collection[str] | None = None) -> RewardProgram:
        """Returns the program in a .py file, checked as any other; provenance from the .json beside it, where there is one.

        InvalidProgram also where that file is about another program.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fix = "give the path of a .py file; robo-rl reward write and robo-rl reward latent make them"
            raise InvalidProgram("no code", f"{path} cannot be read: {error}.", fix=fix) from None
        program = cls.parse(text, columns, provenance={})
        about = _about(path.with_suffix(".json"))
        if about and about.get("hash") != program.hash:
            fix = f"remove {path.with_suffix('.json').name} if the program was changed on purpose"
            raise InvalidProgram(
                "forbidden", f"{path.with_suffix('.json')} is about another program.", got=program.hash[:12], fix=fix
            )
        return cls(program.source, program.code, program.terms, program.columns, about.get("provenance", {}), program.lines)

    def where(self, line: int) -> str:
        """Returns a line of the program as it was written, for a line of `code`."""
        number, lines = self.lines.get(line), re.split("\r\n|\r|\n", self.source)  # Python's lines, fewer than str's
        return "" if number is None or number > len(lines) else f"line {number}, `{printable(lines[number - 1].strip()[:120])}`"


def _about(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidProgram("syntax", f"{path} cannot be read: {error}.", fix="remove it") from None
    return about if isinstance(about, dict) else {}


def _matched(tree: ast.Module, code: str) -> dict[int, int]:
    """Returns line of `code` -> line of the source: both have the same statements in the same order."""
    theirs, ours = ([node for node in ast.walk(root) if isinstance(node, ast.stmt)] for root in (tree, ast.parse(code)))
    return {mine.lineno: written.lineno for mine, written in zip(ours, theirs, strict=True)}
