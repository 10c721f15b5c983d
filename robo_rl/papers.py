"""Papers: folders that each hold all of one method, found through the entry point group `robo_rl.papers`.

    [project.entry-points."robo_rl.papers"]
    my-papers = "my_papers"

names a package. It is a paper if it holds a `paper.toml`, and so is each of its folders that holds one:

    title = "Reward-weighted regression"
    summary = "Imitate your own past in proportion to the reward that followed."
    source = "https://doi.org/10.1145/1273496.1273590"

    [learners]
    rwr = "learner:RWRConfig"

`[evidence.learners.rwr]` says how far it was shown to work (`robo_rl.evidence`).

A table for each group of components has name = "module:object", the module counted from the folder. The rest of the folder
needs no declaration: recipes, plans of experiments and packs of replies in `recipes/NAME.yaml`, `plans/NAME.yaml` and
`packs/NAME.yaml`, the page `page.md`, the study `study.py`, tests in `tests/`. Listing reads these files and imports nothing.
"""

from __future__ import annotations

import re
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName

Group = Literal[
    "environments",
    "wrappers",
    "encoders",
    "text_encoders",
    "learners",
    "networks",
    "rewards",
    "raters",
    "image_text_models",
    "judges",
    "captioners",
    "guides",
    "robots",
    "cameras",
    "teleoperators",
    "formats",
    "task_samplers",
    "operations",
    "commands",
]
"""Group of components; the group of entry points is `robo_rl.GROUP`."""
GROUP = "robo_rl.papers"
DECLARATION = "paper.toml"
_COMPONENT = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")


class Component(EntryPoint):
    """Entry point of a learner, reward or other component that a paper declares in its `paper.toml`."""

    distribution: str

    def __init__(self, name: str, value: str, group: str, distribution: str) -> None:
        super().__init__(name, value, group)
        vars(self).update(distribution=distribution)  # an entry point refuses attributes


@dataclass(frozen=True)
class Paper:
    """Contents of one paper's `paper.toml`, and the paths of the files in its folder.

    A paper is a folder that holds all of one method.
    """

    name: str
    """Name of the paper's folder."""
    package: str
    """Import name of the folder."""
    folder: Path
    distribution: str
    """Installed distribution that contains the paper."""
    title: str
    summary: str
    """Summary in one sentence."""
    source: str = ""
    """URL of the paper."""
    section: str = "Papers"
    """Section of the documentation's navigation."""
    components: Mapping[Group, Mapping[str, str]] = field(default_factory=dict)
    """Group of components -> name -> "module:object"."""
    trials: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Learner -> settings with which the conformance suites try it (robo_app.papers.trials)."""
    evidence: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Group -> name -> evidence as declared (robo_rl.evidence)."""

    @property
    def recipes(self) -> dict[str, Path]:
        """Name -> file of each recipe."""
        return {path.stem: path for path in sorted(self.folder.glob("recipes/*.yaml"))}

    @property
    def plans(self) -> dict[str, Path]:
        """Name -> file of each plan of experiments."""
        return {path.stem: path for path in sorted(self.folder.glob("plans/*.yaml"))}

    @property
    def packs(self) -> dict[str, Path]:
        """Name -> file of each pack of replies, which stand in for a language model's answers."""
        return {path.stem: path for path in sorted(self.folder.glob("packs/*.yaml"))}

    @property
    def page(self) -> Path | None:
        """File of the documentation page; None without one."""
        return _there(self.folder / "page.md")

    @property
    def study(self) -> str | None:
        """Name of the study module (`python -m MODULE`); None without one."""
        return f"{self.package}.study" if _there(self.folder / "study.py") else None

    def points(self, group: Group) -> list[EntryPoint]:
        """Return the entry points that the paper declares in a group."""
        return [
            Component(name, f"{self.package}.{place}", f"robo_rl.{group}", self.distribution)
            for name, place in self.components.get(group, {}).items()
        ]


def papers() -> dict[str, Paper]:
    """Return name -> paper of all installed distributions, sorted by name, without importing them.

    Warns about each paper whose declaration cannot be read.
    """
    return dict(_papers(tuple(sys.path)))


@lru_cache(maxsize=8)
def _papers(path: tuple[str, ...]) -> dict[str, Paper]:
    found: dict[str, Paper] = {}
    for point in entry_points(group=GROUP):
        distribution = point.dist.name if point.dist is not None else point.value
        for package, folder in _folders(point.value):
            try:
                paper = read_paper(folder, package, distribution)
            except RoboRLError as error:  # one that cannot be used hides no other
                warnings.warn(f"A paper of {distribution} is left out: {error}", stacklevel=2)
                continue
            found.setdefault(paper.name, paper)
    return {name: found[name] for name in sorted(found)}


def _folders(package: str) -> Iterator[tuple[str, Path]]:
    """Yield import name and folder of a package, and of its direct subfolders, that hold a declaration."""
    top, *rest = package.split(".")
    spec = find_spec(top)  # of a package without parents: nothing is imported
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(place, *rest)
        if (folder / DECLARATION).is_file():
            yield package, folder
        for file in sorted(folder.glob(f"*/{DECLARATION}")):
            yield f"{package}.{file.parent.name}", file.parent


def read_paper(folder: Path, package: str, distribution: str) -> Paper:
    """Return the paper in a folder; raises InvalidSetting or UnknownName with the file and the key that is wrong."""
    file = folder / DECLARATION
    try:
        declared = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"{file} cannot be read.", got=error, allowed="TOML") from None
    words = {key: declared.pop(key, "") for key in ("title", "summary", "source", "section")}
    if lacking := [key for key in ("title", "summary") if not words[key]]:
        raise InvalidSetting(
            f"{file} lacks {' and '.join(lacking)}.", got=sorted({*words, *declared}), allowed="a text for each"
        )
    if wrong := [key for key, value in words.items() if not isinstance(value, str)]:
        raise InvalidSetting(f"{file}: {wrong[0]} is no text.", got=repr(words[wrong[0]]), allowed="text")
    trials, evidence = declared.pop("trials", {}), declared.pop("evidence", {})
    for group, components in declared.items():
        if group not in get_args(Group):
            raise UnknownName(f"key in {file}:", group, [*words, "trials", "evidence", *get_args(Group)])
        _require_components(file, group, components)
    if not isinstance(trials, dict) or not all(isinstance(each, dict) for each in trials.values()):
        raise InvalidSetting(f"{file}: trials is no table of tables.", got=repr(trials)[:200], allowed="[trials.LEARNER]")
    if not isinstance(evidence, dict) or not all(isinstance(each, dict) for each in evidence.values()):
        allowed = "[evidence.GROUP.NAME]"
        raise InvalidSetting(f"{file}: evidence is no table of tables.", got=repr(evidence)[:200], allowed=allowed)
    given = {key: value for key, value in words.items() if value}
    name = package.rpartition(".")[2]
    components = {group: declared[group] for group in get_args(Group) if group in declared}
    return Paper(name, package, folder, distribution, **given, components=components, trials=trials, evidence=evidence)


def _require_components(file: Path, group: str, components: Any) -> None:
    if not isinstance(components, dict):
        raise InvalidSetting(f"{file}: {group} is no table.", got=repr(components)[:200], allowed=f"[{group}]")
    for name, place in components.items():
        if not isinstance(place, str) or not _COMPONENT.fullmatch(place):
            allowed = '"module:object", the module counted from the folder, such as "learner:Config"'
            raise InvalidSetting(f"{file}: {group}.{name} names no object.", got=repr(place)[:200], allowed=allowed)


def _there(file: Path) -> Path | None:
    return file if file.is_file() else None
