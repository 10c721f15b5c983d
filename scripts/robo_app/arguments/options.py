"""Options of commands: tyro reads them, and its errors are printed in the form of all other errors."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, NoReturn

import tyro

from robo_app.arguments.free_settings import gather, groups_of, read_value
from robo_rl.errors import RoboRLError

Settings = dict[str, Any]
"""Name of an option without dashes, such as learner.lr -> value."""
Words = Sequence[str]
"""Words of a command line, after `robo-rl`."""
WIDE = "1000"  # columns, so that no line of tyro's is broken
TEXTS = {"--name", "--out", "--runs", "--dataset", "--labels", "--demos"}
"""Options whose values are always texts, even if they look like numbers."""
SCIENTIFIC = re.compile(r"\d+(?:\.\d+)?[eE]\+?\d+")


def options(settings: Settings) -> list[str]:
    """Return settings as words of a command line; a list becomes one word for each value."""
    words: list[str] = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(text if isinstance(text, str) else json.dumps(text) for text in values)]
    return words


class WrongUsage(RoboRLError):
    """Error for words of a command line that the command does not accept."""


def read_options(kind: Any, words: Sequence[str], *, prog: str, description: str, config: Sequence[Any], **more: Any) -> Any:
    """Return the options in a command line as an object of the dataclass `kind`; on an error print it and exit with 2.

    Args:
        kind: Dataclass of the options.
        words: Words after the name of the command.
        prog: Name of the command, for help and errors.
        description: Text of the help page.
        config: Configuration of tyro.
        **more: Further arguments of `tyro.cli`.
    """
    words = gather(whole_numbers(words), groups_of(kind))
    parser_options = {"prog": prog, "description": description, "config": tuple(config), **more}
    flags = as_flags(words)
    for tried in (words, *(each for each in (flags, spread(flags)) if each != words)):
        try:
            with redirect_stderr(io.StringIO()):
                return tyro.cli(kind, args=tried, **parser_options)
        except SystemExit as ended:
            if ended.code in (0, None):
                raise
    error = WrongUsage("")
    for tried in (words, flags):
        shown, like_a_terminal = io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # tyro draws boxes there
        with _wide(), redirect_stderr(shown), redirect_stdout(like_a_terminal), suppress(SystemExit):
            tyro.cli(kind, args=tried, **parser_options)
        error = usage_error(shown.getvalue(), tried, prog)
        if not re.search(r"'(true|false)' is one word too many", str(error), re.IGNORECASE):
            break  # or a switch was given a word, and another option is wrong
    refuse(error)


def refuse(error: WrongUsage) -> NoReturn:
    """Print an error and exit with status 2."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)


def as_flags(words: Sequence[str]) -> list[str]:
    """Return words in which "--a.name true" is replaced by "--a.name", and "--a.name false" by "--a.no-name"."""
    found: list[str] = []
    for word in words:
        if word.lower() in ("true", "false") and found and found[-1].startswith("--") and "=" not in found[-1]:
            start, dot, name = found.pop().removeprefix("--").rpartition(".")
            found.append(f"--{start}{dot}{'' if word.lower() == 'true' else 'no-'}{name}")
        else:
            found.append(word)
    return found


def spread(words: Sequence[str]) -> list[str]:
    """Return words in which a list such as "[32, 32]" after an option is replaced by one word for each value."""
    found: list[str] = []
    for word in words:
        option, is_parted, value = word.partition("=") if word.startswith("--") else ("", "", word)
        items: Any = read_value("it", [value]) if re.fullmatch(r"\[[^][{}]+\]", value) else None
        if isinstance(items, list) and all(isinstance(item, str | int | float) for item in items):
            found += [option] if is_parted else []
            found += [item if isinstance(item, str) else json.dumps(item) for item in items]
        else:
            found.append(word)
    return found


def described(text: str, examples: str) -> str:
    """Return a help text followed by examples, with empty lines between all lines, because tyro joins others."""
    return "\n\n".join([text, "examples:", *examples.splitlines()])


def whole_numbers(words: Sequence[str]) -> list[str]:
    """Return words in which a whole number in scientific notation after an option, such as 1e5, is written as 100000."""
    found = []
    for before, word in zip(["", *words], words, strict=False):
        option, is_parted, value = word.partition("=") if word.startswith("--") else (before, "", word)
        is_whole = option.startswith("--") and option not in TEXTS and SCIENTIFIC.fullmatch(value) and float(value) < 1e15
        number = str(int(float(value))) if is_whole and float(value).is_integer() else value
        found.append(f"{option}={number}" if is_parted else number if not word.startswith("--") else word)
    return found


def usage_error(box: str, words: Sequence[str], prog: str) -> WrongUsage:
    """Return an error in the workbench's form for the error box that tyro printed.

    box: text of the box. words: command line. prog: name of the command.
    """
    lines = [re.sub(r"^│ ?| *│$", "", line) for line in box.splitlines() if line.startswith("│")]
    listing = f"`{prog} --help` lists all options"
    first = next((line.strip() for line in lines), "The options cannot be read.")
    options = _described(lines)
    if found := re.match(r"Unrecognized options: (.*)", first):
        unknown = found[1].split(", ")
        close = f"did you mean {' or '.join(options)}?; " if options else ""
        what = f"Unknown option {unknown[0]!r}." if unknown[0].startswith("-") else f"{unknown[0]!r} is one word too many."
        return WrongUsage(what, got=" ".join(unknown), fix=f"{close}{listing}")
    if found := re.match(r"Error parsing ([^:]+): (.*)", first):
        typed = re.search(r"'([^']*)'$", found[2])
        got = typed[1] if typed else found[2]
        return WrongUsage(f"{found[1]} cannot be read.", got=got, allowed="; ".join(options) or found[2], fix=listing)
    if first.startswith(("Missing from", "Required", "The following")):
        return WrongUsage(f"{prog} needs more.", got=" ".join(words) or "nothing", allowed="; ".join(options), fix=listing)
    rest = " ".join(line.strip() for line in lines[1:] if "─" not in line and "full helptext" not in line)
    return WrongUsage(first, got=" ".join(words), allowed=rest or None, fix=listing)


def _described(lines: Sequence[str]) -> list[str]:
    """Return the options that the lines of a box describe, each as name and type, then its help text."""
    found: list[str] = []
    for line in lines[1:]:
        text = line.strip()
        if re.match(r"(--\S+|-\w\b|[A-Z][A-Z_]*\b)", text) and not text.startswith("For ") and re.match(r" {4}\S", line):
            found.append(text)
        elif found and line.startswith("    ") and not found[-1].endswith(")"):
            found[-1] = f"{found[-1]}{': ' if ':' not in found[-1] else ' '}{text}"
    return found


@contextmanager
def _wide() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDE
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
