"""robo-rl bench: how fast it is here, beside its peers, measured in turns in one run."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from robo_bench.measurement import Cases, Effort, Measurement, confined, peak_memory
from robo_cli.interruption import loud_exit
from robo_cli.main import described
from robo_cli.options import read_options
from robo_rl.errors import InvalidSetting, UnknownName

EXAMPLES = """robo-rl bench env
robo-rl bench all --json > bench.jsonl
robo-rl bench learner --seconds 10 --repeats 7     (steadier figures)
robo-rl bench learner --threads 1 --processor-time     (where other programs run beside it)
robo-rl bench robot --seconds 500 --repeats 1     (10,000 cycles)
robo-rl bench env --only Ant     (the cases whose names contain a text)
scripts/setup --bench && .venv-bench/bin/robo-rl bench all     (with EnvPool and SBX beside the others)"""
BENCHES = {
    "env": ("robo_bench.simulation",),
    "learner": ("robo_bench.off_policy", "robo_bench.ppo", "robo_bench.ppo_pictures"),
    "render": ("robo_bench.rendering",),
    "memory": ("robo_bench.replay_memory",),
    "resume": ("robo_bench.checkpoints",),
    "data": ("robo_bench.dataset_reading",),
    "reward": ("robo_bench.labelling", "robo_bench.reward_programs"),
    "annotation": ("robo_bench.annotation",),
    "collectors": ("robo_bench.collectors",),
    "robot": ("robo_bench.robot", "robo_bench.audit_log"),
    "drive": ("robo_bench.drive_ticks", "robo_bench.drive_steps"),
}
"""Name -> modules, each with a function `cases(effort)`."""


@dataclass(frozen=True)
class Bench:
    """Measure speed. Peers count where they are installed; figures are medians, ratios above 1 mean faster than the best."""

    what: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="env|learner|render|memory|resume|data|reward|annotation|collectors|robot|drive|all"),
    ]
    """Which bench, or all of them, each in a process of its own."""
    seconds: float = 2.0
    """[s] of one trial."""
    repeats: int = 5
    """Trials of each contestant."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Threads, and cores, of each contestant; without it each runs with its own default, as its users start it."""
    processor_time: bool = False
    """Count processor time instead of the clock, for a machine that others load; for the bench `learner`."""
    only: str = ""
    """Measure the cases whose names contain this text."""
    json: bool = False
    """Print one JSON object per line."""

    def __post_init__(self) -> None:
        if self.what not in (*BENCHES, "all"):
            raise UnknownName("bench", self.what, (*BENCHES, "all"))
        if self.processor_time and self.what != "learner":
            raise InvalidSetting("--processor-time is for one bench.", got=self.what, allowed="learner")
        _ = self.effort  # checks itself

    @property
    def effort(self) -> Effort:
        """The same settings, as benches take them."""
        return Effort(self.seconds, self.repeats, self.threads, self.processor_time)


def main(arguments: list[str]) -> int:
    """Run what the command line asks for and return its exit status."""
    order = read_options(
        Bench,
        arguments,
        prog="robo-rl bench",
        description=described("Measure speed beside Gymnasium, EnvPool, SB3 and SBX, in one run.", EXAMPLES),
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    with loud_exit("look at what the environment calls: nothing after it was done"):
        return run(order)


def run(arguments: Bench) -> int:
    """Prints each row as soon as it is measured, and the peak memory last."""
    if arguments.what == "all":
        names = [name for name in BENCHES if any(arguments.only in case for case in _cases(name, arguments.effort))]
        return max((_in_its_own_process(name, arguments) for name in names), default=0)
    rows = _rows(arguments.what, arguments.effort, arguments.only)
    if arguments.json:
        for row in rows:
            print(row.to_json(), flush=True)
    else:
        _show(rows)
    return 0


def _cases(name: str, effort: Effort) -> Cases:
    cases: Cases = {}
    for module in BENCHES[name]:
        cases |= importlib.import_module(module).cases(effort)
    return cases


def _rows(name: str, effort: Effort, only: str) -> Iterator[Measurement]:
    cases = _cases(name, effort)
    chosen = [measure for case, measure in cases.items() if only in case]
    if not chosen:
        raise UnknownName(f"case of bench {name}", only, cases)
    with confined(effort.threads):
        for measure in chosen:
            yield measure()
    yield peak_memory(name)


def _in_its_own_process(name: str, arguments: Bench) -> int:
    """Runs one bench so that neither its memory nor its threads are felt by the next; returns its exit status."""
    given = {name: getattr(arguments, name) for name in ("seconds", "repeats", "threads", "only")}
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    command = [sys.executable, "-m", "robo_cli.main", "bench", name, *options, *(["--json"] if arguments.json else [])]
    return subprocess.run(command, check=False).returncode


def _show(rows: Iterator[Measurement]) -> None:
    console = Console()
    table = Table("bench", "case", "ours", "unit", "peers", "ratio", "limit", box=SIMPLE_HEAD, pad_edge=False)
    with console.status("measuring") as status:
        for row in rows:
            status.update(f"measured: {row.case}")
            peers = ", ".join(f"{name} {value:.4g} ({row.ratios[name]:.2f}x)" for name, value in row.peers.items())
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            limit = "" if row.limit is None else f"{row.limit:.4g}"
            table.add_row(row.bench, row.case, f"{row.ours:.4g}", row.unit, peers, ratio, limit)
    console.print(table, soft_wrap=not console.is_terminal)
