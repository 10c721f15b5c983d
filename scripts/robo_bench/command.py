"""robo-rl bench: speed on this machine against peers, measured in turns in one run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from robo_app.arguments.options import described, read_options
from robo_app.jobs.interruption import loud_exit
from robo_bench.measurement import PEAK_MEMORY, Case, Effort, Figures, confined
from robo_rl.errors import InvalidSetting, UnknownName

TEXT = "Measure speed. Peers are included if installed; figures are medians, ratios above 1 mean faster than the best."
EXAMPLES = """robo-rl bench env
robo-rl bench all --json > bench.jsonl
robo-rl bench learner --seconds 10 --repeats 7     (steadier figures)
robo-rl bench learner --threads 1 --processor-time     (on a loaded machine)
robo-rl bench updates --beside ../before/.venv/bin/python     (another version in turns with this one)
robo-rl bench robot --seconds 500 --repeats 1     (10,000 cycles)
robo-rl bench env --only Ant     (the cases whose names contain a text)
scripts/setup --bench && .venv-bench/bin/robo-rl bench all     (with EnvPool and SBX too)"""
BENCHES = {
    "env": ("simulation",),
    "learner": ("off_policy", "many_environments", "ppo"),
    "updates": ("updates",),
    "seeing": ("seeing",),
    "render": ("rendering",),
    "memory": ("replay_memory",),
    "data": ("dataset_reading",),
    "reward": ("labelling", "reward_programs"),
    "collectors": ("collectors",),
    "robot": ("robot",),
    "drive": ("drive",),
}
"""Name that follows `robo-rl bench` -> modules that it runs. Each module has a function `cases(effort)`."""
ONLY_FOR = {"processor_time": "learner", "beside": "updates"}
"""Options that one bench alone has."""


@dataclass(frozen=True, kw_only=True)
class Bench(Effort):
    """Options of `robo-rl bench`."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="|".join([*BENCHES, "all"]))]
    """Which bench, or all of them, each in its own process."""
    only: str = ""
    """Measure the cases whose names contain this text."""
    json: bool = False
    """Print one JSON object per line."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what not in (*BENCHES, "all"):
            raise UnknownName("bench", self.what, (*BENCHES, "all"))
        for option, bench in ONLY_FOR.items():
            if getattr(self, option) and self.what != bench:
                raise InvalidSetting(f"--{option.replace('_', '-')} is for one bench.", got=self.what, allowed=bench)


def main(arguments: list[str]) -> int:
    """Print each row as soon as it is measured, and the peak memory last; return the exit status."""
    config = (tyro.conf.FlagCreatePairsOff,)
    order = read_options(Bench, arguments, prog="robo-rl bench", description=described(TEXT, EXAMPLES), config=config)
    if order.what == "all":
        names = [name for name in BENCHES if any(order.only in case.name for case in cases_of(name, order))]
        return max((_in_its_own_process(name, order) for name in names), default=0)
    with loud_exit("look for calls of the environment after its end"), confined(order.threads):
        (_print_lines if order.json else print_table)(order.what, _rows(order))
    return 0


def cases_of(bench: str, effort: Effort) -> list[Case]:
    """Return all cases of one benchmark, from all of its modules."""
    modules = [importlib.import_module(f"robo_bench.{name}") for name in BENCHES[bench]]
    return [case for module in modules for case in module.cases(effort)]


def _rows(order: Bench) -> Iterator[tuple[Case, Figures]]:
    cases = cases_of(order.what, order)
    chosen = [case for case in cases if order.only in case.name]
    if not chosen:
        raise UnknownName(f"case of bench {order.what}", order.only, [case.name for case in cases])
    for case in (*chosen, PEAK_MEMORY):
        yield case, case.measure(order)


def _in_its_own_process(name: str, order: Bench) -> int:
    """Run one bench isolated in memory and threads; return its exit status."""
    given = {name: getattr(order, name) for name in ("seconds", "repeats", "threads", "only")}
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    command = [sys.executable, "-m", "robo_cli.main", "bench", name, *options, *(["--json"] if order.json else [])]
    return subprocess.run(command, check=False).returncode


def _print_lines(bench: str, rows: Iterator[tuple[Case, Figures]]) -> None:
    for case, figures in rows:
        print(json.dumps({"bench": bench, "case": case.name, "unit": case.unit} | figures.to_json()), flush=True)


def print_table(bench: str, rows: Iterator[tuple[Case, Figures]]) -> None:
    """Print the rows of a bench as one table when all are measured; until then a status line names the case."""
    console = Console()
    table = Table("bench", "case", "ours", "unit", "peers", "ratio", "limit", box=SIMPLE_HEAD, pad_edge=False)
    with console.status("measuring") as status:
        for case, found in rows:
            status.update(f"measured: {case.name}")
            peers = ", ".join(f"{name} {value:.4g} ({found.ratios[name]:.2f}x)" for name, value in found.peers.items())
            ratio = "" if found.ratio is None else f"{found.ratio:.2f}"
            limit = "" if found.limit is None else f"{found.limit:.4g}"
            table.add_row(bench, case.name, f"{found.ours:.4g}", case.unit, peers, ratio, limit)
    console.print(table, soft_wrap=not console.is_terminal)
