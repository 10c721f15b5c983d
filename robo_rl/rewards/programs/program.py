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
"""Line that opens or closes a fenced block. All quantifiers are possessive, since backtracking over a long line would take
minutes."""
NEWLINE = re.compile("\r\n|\r|\n")
"""Line ends of Python. str.splitlines has more, which would turn comments into code; a terminal has fewer, which would hide
code."""
FRAMES = "frames"
"""Key in a program's provenance: column -> frame, for columns that were relative to a hand when the program was written."""
LANGUAGES = ("", "python", "py", "python3")
MOST_CHARACTERS = 100_000
"""Largest number of characters of an answer, prose included."""
ASK = "answer with one fenced block ```python ... ``` that holds `def reward(batch):`"


@dataclass
class Block:
    """A fenced block in a model's answer: its language, its lines, and whether it was closed."""

    language: str
    lines: list[str] = field(default_factory=list)
    is_closed: bool = False

    @property
    def text(self) -> str:
        """Text of the block without common indentation."""
        return textwrap.dedent("\n".join(self.lines)).strip("\n")


def extracted(answer: str) -> str:
    """Return the text of the only program in an answer.

    Raises InvalidProgram if there is none, several or an incomplete one.
    """
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
    """Return True if the text is a program as it is; fences in it are then part of its docstrings."""
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
    """A reward program whose text keeps to the grammar; `parse` or `read` makes one."""

    source: str
    """Original text, without the prose around it."""
    code: str
    """Code that is run, which calls listed functions only (robo_rl.rewards.programs.grammar)."""
    terms: tuple[str, ...]
    """Names of the terms, in the order in which they are returned."""
    columns: tuple[str, ...]
    """Names of the columns that the program reads."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """JSON values on the origin, such as the model, the hash of the prompt, the program that it improves."""
    lines: Mapping[int, int] = field(default_factory=dict, repr=False, compare=False)
    """Line number in `code` -> line number in `source`."""

    def misread(self, moved: Mapping[str, str], *, frames_are_known: bool = True) -> list[str]:
        """Return the columns that the program would read in another frame than it was written for.

        A program accepts all frames if its docstring has a line "frames: any", and frames of a hand with "frames: relative".
        Otherwise it needs the frames in its provenance, or the base frame.

        Args:
            moved: Column -> frame, for the columns of the environment that are relative to a hand.
            frames_are_known: False if the source of the columns states no frames; the result is then empty.
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
        """Word after "frames:" in the docstring of a person's program; "" if there is none."""
        if "model" in self.provenance:  # a model may have copied the line from an example
            return ""
        functions = [node for node in ast.parse(self.source).body if isinstance(node, ast.FunctionDef)]
        lines = [line.strip() for node in functions for line in (ast.get_docstring(node) or "").splitlines()]
        return next((line.removeprefix("frames:").strip() for line in lines if line.startswith("frames:")), "")

    @property
    def hash(self) -> str:
        """SHA-256 of the syntax that is run. Formatting, comments, docstrings and annotations do not change it."""
        return hashlib.sha256("\n".join([self.code, *self.terms]).encode()).hexdigest()

    @classmethod
    def parse(
        cls, text: str, columns: Collection[str] | None = None, *, provenance: Mapping[str, Any] | None = None
    ) -> RewardProgram:
        """Return the only program in a text, bare or in one fenced block among prose; raises InvalidProgram.

        Args:
            text: The text.
            columns: Names of the columns of a batch; None if they are not known, so that any name is accepted.
            provenance: JSON values on the origin of the program.
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
        """Write the program to a .py file, and its provenance to a .json file beside it; return the path of the .py file.

        path: the .py file, or a folder, in which the file is called by the hash.
        """
        path = Path(path)
        path = path / f"{self.hash[:12]}.py" if path.suffix != ".py" else path
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"hash": self.hash, "terms": self.terms, "columns": self.columns, "provenance": self.provenance}
        write_durably(path, f"{self.source}\n".encode())
        write_durably(path.with_suffix(".json"), f"{json.dumps(about, indent=2)}\n".encode())
        return path

    @classmethod
    def read(cls, path: Path | str, columns: Collection[str] | None = None) -> RewardProgram:
        """Return the program in a .py file, with its provenance from the .json file beside it, if there is one.

        Raises InvalidProgram if the program breaks the grammar, or the .json file is about another program.
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
        """Return a text with the line number in `source` for a line number of `code`; "" if it is unknown."""
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
    """Return line number in `code` -> line number in the source; both have the same statements in the same order."""
    theirs, ours = ([node for node in ast.walk(root) if isinstance(node, ast.stmt)] for root in (tree, ast.parse(code)))
    return {mine.lineno: written.lineno for mine, written in zip(ours, theirs, strict=True)}
