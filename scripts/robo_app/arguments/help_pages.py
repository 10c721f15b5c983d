"""Help of a command with hundreds of options: an overview, and a page for each group."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress

from robo_rl.errors import UnknownName

ASKS = ("--help", "-h")
ALL = "all"
"""Name of the page with all options."""
_BOX = re.compile(r"^╭─ (?:(.*) )?options ─*╮$")
_OPTION = re.compile(r"^│ -")


def group_asked(words: Sequence[str]) -> str | None:
    """Return the group of options after --help in a command line, "" for none; None if there is no --help."""
    place = next((place for place, word in enumerate(words) if word in ASKS), None)
    if place is None:
        return None
    following = [*words[place + 1 : place + 2], ""][0]
    return "" if following.startswith("-") else following


def help_page(show: Callable[[], object], group: str, command: str) -> str:
    """Return one page of a long help text.

    Args:
        show: Function that prints the whole help; it may end the program.
        group: Group of options, "all", or "" for the overview.
        command: Command as typed, without --help.

    Raises:
        UnknownName: There is no such group.
    """
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # boxes are drawn where they can be encoded
    with redirect_stdout(printed), suppress(SystemExit):
        show()
    printed.seek(0)
    head, boxes = _parts(printed.read())
    names = [name for name in boxes if name]
    if group == ALL:
        return "\n".join([head, *boxes.values()])
    if group:
        found = [box for name, box in boxes.items() if name == group or name.startswith(f"{group}.")]
        if not found:
            raise UnknownName(f"group of options of {command}", group, [*names, ALL])
        return "\n".join(found)
    width = max(map(len, [*names, ALL])) + 2
    rows = [f"  {name:{width}}{_count(boxes[name])}" for name in names]
    more = [f"Further groups, each shown by `{command} --help GROUP`:", *rows, f"  {ALL:{width}}everything"]
    return "\n".join([head, boxes[""], *more])


def print_help(page: str) -> None:
    """Print a help page and end the program with exit status 0."""
    print(page)
    sys.exit(0)


def _parts(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first box, with at most one empty line in a row, and the boxes by group."""
    head: list[str] = []
    boxes: dict[str, list[str]] = {}
    newest = head
    for line in text.splitlines():
        if (title := _BOX.match(line)) is not None:
            newest = boxes.setdefault(title[1] or "", [])
        newest.append(line)
    begins = next((place for place, line in enumerate(head) if line.startswith("examples")), len(head))
    examples = [line for line in head[begins:] if line.strip()]
    return "\n".join([*head[:begins], *examples, ""]), {name: "\n".join(lines) for name, lines in boxes.items()}


def _count(box: str) -> str:
    options = sum(bool(_OPTION.match(line)) for line in box.splitlines())
    return "1 option" if options == 1 else f"{options} options"
