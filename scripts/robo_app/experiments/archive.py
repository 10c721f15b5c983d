"""Archive of a study: one JSON file with a line for each finished training, from which tables and curves are made.

A training in the archive counts as finished, so a study can continue on another machine without its run folders. Older archives
have only a table, without trainings; they list in `unknown` what they lack.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from robo_app.experiments.records import Circumstances, Json, Record, from_json, to_json
from robo_app.experiments.study import Cell
from robo_rl.errors import RunError
from robo_rl.evaluation.measures import Measure
from robo_rl.runs.run import write_text
from robo_rl.system.plain_files import read_object

FORMAT = 1
SHARED = "shared"
"""Name of the settings that all trainings have in common."""
UNKNOWN = ("commit", "versions", "machine", "date", "settings", "episodes", "curves")
"""Facts that an archive lacks if it has only its table."""


@dataclass(frozen=True)
class Archive:
    """Finished trainings of a study, and the table that was made from them."""

    study: str
    kind: str
    """"study", "race" or "results": the form of its table."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """Plan of the last run; empty if there is none."""
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Dataset -> digest of its content, reference returns, number of episodes, their mean score."""
    records: tuple[Record, ...] = ()
    table: Mapping[str, Any] = field(default_factory=dict)
    """Facts from which the printed table is made. An archive of a table alone has these and no records."""

    @property
    def is_table(self) -> bool:
        """True if the archive has a table but no trainings, so that the table cannot be computed again."""
        return not self.records and bool(self.table)

    @property
    def by_cell(self) -> dict[Cell, Record]:
        """Records by method, dataset or task, and seed."""
        return {record.cell: record for record in self.records}

    def of(self, method: str, on: str = "") -> dict[int, Record]:
        """Return the records of a method by seed. on: dataset or task; "" if the study has none."""
        return {record.seed: record for record in self.records if (record.method, record.on) == (method, on)}

    def with_records(self, records: Iterable[Record]) -> Archive:
        """Return the archive with more records; each replaces an earlier one of the same method, dataset or task, and seed."""
        found = self.by_cell | {record.cell: record for record in records}
        return replace(self, records=tuple(found[cell] for cell in sorted(found)))

    def write(self, path: Path) -> None:
        """Write the archive into a file; an existing one is replaced."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.text())

    def text(self) -> str:
        """Return the content of the file: one line for each training."""
        settings = _shared_settings(self.records)
        digests = {_key(record.settings): _digest(record.settings) for record in self.records}
        made = [*dict.fromkeys(_key(asdict(record.circumstances)) for record in self.records)]
        measures: dict[str, Json] = {}
        for record in self.records:
            for measure in record.final.measures if record.final else ():
                measures.setdefault(record.evaluation.environment, {})[measure.name] = asdict(measure)
        head: Json = {"format": FORMAT, "study": self.study, "kind": self.kind, "plan": self.plan, "datasets": self.datasets}
        head |= {"circumstances": [json.loads(each) for each in made], "measures": measures, "table": self.table}
        if self.is_table:
            head["unknown"] = UNKNOWN
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items() if value not in ({}, [])]
        lines += [f'"settings": {{\n{_lines(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in settings.items())}}}']
        rows = (
            json.dumps(
                to_json(record)
                | {"settings": digests[_key(record.settings)], "made": made.index(_key(asdict(record.circumstances)))}
            )
            for record in self.records
        )
        lines += [f'"trainings": [\n{_lines(rows)}]']
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def read(cls, path: Path) -> Archive:
        """Return the archive in a file; raises RunError if it is damaged, FileNotFoundError if there is none."""
        found = read_object(path)
        try:
            if found["format"] != FORMAT:
                allowed = f"format {FORMAT}"
                raise RunError(f"{path} has another format.", got=found["format"], allowed=allowed, fix="update robo-rl")
            circumstances = [Circumstances(**each) for each in found.get("circumstances", ())]
            measures = {
                environment: {name: Measure(**each) for name, each in named.items()}
                for environment, named in found.get("measures", {}).items()
            }
            settings = found.get("settings", {})
            records = tuple(
                from_json(
                    each,
                    settings[SHARED] | settings[each["settings"]] if each["settings"] else {},
                    circumstances[each["made"]],
                    measures,
                )
                for each in found["trainings"]
            )
            known = {name: found[name] for name in ("plan", "datasets", "table") if name in found}
            return cls(found["study"], found["kind"], records=records, **known)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"{path} is no archive of a study.",
                got=f"{type(error).__name__}: {error}",
                allowed="a file that `robo-rl experiment --archive` has written",
                fix="name another file",
            ) from None


def require_own(path: Path, study: str) -> Archive | None:
    """Return the archive in a file, None without the file.

    Raises RunError if the archive is of another study, or has only its table, to which nothing can be added.
    """
    if not path.exists():
        return None
    found = Archive.read(path)
    if found.study != study:
        raise RunError(f"{path} is the archive of another study.", got=found.study, allowed=study, fix="name another file")
    if found.is_table:
        raise RunError(
            f"{path} holds a table alone; nothing can be added to it.",
            got="trainings are unknown",
            fix="name another file; remove this one when the other has all of its rows",
        )
    return found


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(_key(settings).encode()).hexdigest()[:12] if settings else ""


def _key(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _shared_settings(records: Iterable[Record]) -> dict[str, Json]:
    """Return digest -> settings; the settings that all records have in common are under `SHARED`."""
    all_of = {_digest(record.settings): dict(record.settings) for record in records if record.settings}
    if not all_of:
        return {}
    first, *others = all_of.values()
    shared = {name: value for name, value in first.items() if all(name in o and o[name] == value for o in others)}
    own = {digest: {name: v for name, v in each.items() if name not in shared} for digest, each in all_of.items()}
    return {SHARED: shared, **own}


def _lines(rows: Iterable[str]) -> str:
    joined = ",\n".join(rows)
    return f"{joined}\n" if joined else ""
