"""A reward program: `reward(batch)` over named numpy columns of N rows, which returns a total and its terms.

    def reward(batch):
        distance = np.linalg.norm(batch["cube_position"] - batch["goal"], axis=1)
        effort = np.sum(batch["action"] ** 2, axis=1)
        return -distance - 0.01 * effort, {"distance": -distance, "effort": -0.01 * effort}

It is extracted from a language model's answer: prose around one fenced block, or the bare program. Reading does not run it;
robo_rl.rewards.programs.sandbox runs it in a separate process.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import textwrap
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robo_rl.errors import InvalidProgram
from robo_rl.rewards.programs.grammar import parsed, translated
from robo_rl.rewards.programs.messages import large, printable
from robo_rl.system.durable_files import write_durably

FENCE = re.compile(r"^\s*+(?:>\s*+)?+(?P<marks>`{3,}+|~{3,}+)\s*+(?P<language>[\w+.-]*+)[^`]*+$")
"""Every part takes all it can for good: a long line that is no fence would take minutes of going back otherwise."""
NEWLINE = re.compile("\r\n|\r|\n")
"""Ends of Python's lines: str has more, which would turn comments into code, and a terminal fewer, which would hide code."""
FRAMES = "frames"
"""In a program's provenance: column -> frame, of those that it was shown as seen from a hand."""
LANGUAGES = ("", "python", "py", "python3")
MOST_CHARACTERS = 100_000
"""Most characters of an answer, prose included."""
ASK = "answer with one fenced block ```python ... ``` that holds `def reward(batch):`"


@dataclass
class Block:
    """A fenced block: its language, its lines, and if it was closed."""

    language: str
    lines: list[str] = field(default_factory=list)
    is_closed: bool = False

    @property
    def text(self) -> str:
        """The lines, moved to the left."""
        return textwrap.dedent("\n".join(self.lines)).strip("\n")


def extracted(answer: str) -> str:
    """Return the text of the one program; InvalidProgram if there is none, more than one, or half of one."""
    if len(answer) > MOST_CHARACTERS:
        allowed = f"{MOST_CHARACTERS} characters"
        raise InvalidProgram("too large", "The answer is too long.", got=f"{len(answer)} characters", allowed=allowed, fix=ASK)
    blocks = [block for block in _blocks(answer) if block.language.lower() in LANGUAGES]
    if not blocks or _is_python(answer):
        return _bare(answer)
    if not blocks[-1].is_closed:
        got = "no closing fence: the answer was cut"
        raise InvalidProgram("no code", "The program is not complete.", got=got, fix="answer again, and shorter")
    if len(blocks) > 1:
        got = f"{len(blocks)} fenced blocks"
        raise InvalidProgram("several programs", "It is not clear which program is meant.", got=got, allowed="one", fix=ASK)
    if not blocks[0].text.strip():
        raise InvalidProgram("no code", "The fenced block is empty.", fix=ASK)
    return blocks[0].text


def _bare(answer: str) -> str:
    answer = "\n".join(NEWLINE.split(answer))
    if re.search(r"^[ \t]*def\s", answer, re.MULTILINE):
        return textwrap.dedent(answer).strip("\n")
    shown = answer.strip().partition("\n")[0][:80]
    raise InvalidProgram("no code", "There is no program in the answer.", got=repr(shown) if shown else "nothing", fix=ASK)


def _is_python(answer: str) -> bool:
    """Return True if a text is a program as it stands; fences in it are then in its docstrings."""
    try:
        ast.parse(textwrap.dedent(answer))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _blocks(answer: str) -> Iterator[Block]:
    block, marks = None, ""
    for line in NEWLINE.split(answer):
        fence = FENCE.match(line)
        if block is None:
            if fence:
                block, marks = Block(fence["language"]), fence["marks"]
        elif fence and fence["marks"].startswith(marks) and not fence["language"]:
            block.is_closed = True
            yield block
            block = None
        else:
            block.lines.append(line)
    if block is not None:
        yield block


@dataclass(frozen=True)
class RewardProgram:
    """A program that keeps to the grammar; made by `parse` or `read`."""

    source: str
    """The original text, without the prose around it."""
    code: str
    """The code that runs: the same by listed functions only (robo_rl.rewards.programs.grammar)."""
    terms: tuple[str, ...]
    """Names of the terms, in their order of return."""
    columns: tuple[str, ...]
    """Names of the columns that it reads."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Provenance, such as the model, the prompt's hash, the program it improves; JSON values."""
    lines: Mapping[int, int] = field(default_factory=dict, repr=False, compare=False)
    """Line of `code` -> line of `source`."""

    def misread(self, moved: Mapping[str, str], *, frames_are_known: bool = True) -> list[str]:
        """Return the columns that it reads in another frame than it was written for.

        moved: column -> frame, of the environment's columns that are seen from a hand. A program takes all frames if its
        docstring has a line "frames: any", a hand's with "frames: relative", else those of its provenance, or the base.
        """
        said = self._said_of_frames
        if said == "any" or not frames_are_known:
            return []
        if said == "relative":
            return [] if moved else [*self.columns]
        written: Mapping[str, str] = self.provenance.get(FRAMES) or {}
        return [name for name in self.columns if moved.get(name) != written.get(name)]

    @property
    def _said_of_frames(self) -> str:
        """Word of a docstring by a person on the frames that it takes; empty without one."""
        if "model" in self.provenance:  # a model may have copied the line from an example
            return ""
        functions = [node for node in ast.parse(self.source).body if isinstance(node, ast.FunctionDef)]
        lines = [line.strip() for node in functions for line in (ast.get_docstring(node) or "").splitlines()]
        return next((line.removeprefix("frames:").strip() for line in lines if line.startswith("frames:")), "")

    @property
    def hash(self) -> str:
        """sha256 of the syntax that is run: spelling, comments, docstrings and annotations do not count."""
        return hashlib.sha256("\n".join([self.code, *self.terms]).encode()).hexdigest()

    @classmethod
    def parse(
        cls, text: str, columns: Collection[str] | None = None, *, provenance: Mapping[str, Any] | None = None
    ) -> RewardProgram:
        """Return the one program in a text, bare or in one fenced block among prose; InvalidProgram if there is none.

        `columns` are the names that a batch will have; None if that is not known, then any name passes.
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
        """Write the program to `path` (a folder: to HASH.py in it), its provenance next to it as .json; return the .py file."""
        path = Path(path)
        path = path / f"{self.hash[:12]}.py" if path.suffix != ".py" else path
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"hash": self.hash, "terms": self.terms, "columns": self.columns, "provenance": self.provenance}
        write_durably(path, f"{self.source}\n".encode())
        write_durably(path.with_suffix(".json"), f"{json.dumps(about, indent=2)}\n".encode())
        return path

    @classmethod
    def read(cls, path: Path | str, columns: Collection[str] | None = None) -> RewardProgram:
        """Return the program in a .py file, checked as any other; provenance from the .json next to it if there is one.

        InvalidProgram also if that file is about another program.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fix = "give the path of a .py file; robo-rl reward write makes them"
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
        """Return the original line of the program for a line of `code`."""
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
    """Return line of `code` -> line of the source: both have the same statements in the same order."""
    theirs, ours = ([node for node in ast.walk(root) if isinstance(node, ast.stmt)] for root in (tree, ast.parse(code)))
    return {mine.lineno: written.lineno for mine, written in zip(ours, theirs, strict=True)}
