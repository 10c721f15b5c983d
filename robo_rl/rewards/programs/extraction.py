"""Find the one program in what a language model wrote: prose around one fenced block, or nothing but the program."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

from robo_rl.errors import InvalidProgram

FENCE = re.compile(r"^\s*+(?:>\s*+)?+(?P<marks>`{3,}+|~{3,}+)\s*+(?P<language>[\w+.-]*+)[^`]*+$")
"""Every part takes all it can for good: a long line that is no fence would take minutes of going back otherwise."""
NEWLINE = re.compile("\r\n|\r|\n")
"""Ends of Python's lines: str has more, which would turn comments into code, and a terminal fewer, which would hide code."""
LANGUAGES = ("", "python", "py", "python3")
MOST_CHARACTERS = 100_000
"""Of an answer, prose included."""
ASK = "answer with one fenced block ```python ... ``` that holds `def reward(batch):`"


@dataclass
class Block:
    """A fenced block: its language, its lines, whether a closing fence was there."""

    language: str
    lines: list[str] = field(default_factory=list)
    is_closed: bool = False

    @property
    def text(self) -> str:
        """The lines, moved to the left."""
        return textwrap.dedent("\n".join(self.lines)).strip("\n")


def extracted(answer: str) -> str:
    """Returns the text of the one program; InvalidProgram where there is none, more than one, or half of one."""
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
    """Whether a text is a program as it stands, so that fences in it are in its docstrings, and no other program is meant."""
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
