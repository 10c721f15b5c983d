"""robo-rl export: a run's policy as files that act without robo-rl."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

import robo_rl
from robo_policies.export.formats import Format

EXAMPLES = """robo-rl export latest --out exported
robo-rl export latest --to torchscript --out exported
robo-rl export RUN --data datasets/pick --out exported     (compared with the policy on the observations of a dataset)"""


@dataclass(frozen=True)
class ExportOrder:
    """Write the policy of a run with its normalisation inside, compared with the policy to 1e-5 before it is kept."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    out: Path
    """Folder to make: the network, policy.json with names, shapes, units and rate, and a runner."""
    to: Format = "onnx"
    """Format: onnx needs the extra export; safetensors holds the weights alone."""
    step: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Step of the policy, if the run has kept it; by default the newest."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="DATASET")] = None
    """Dataset with observations to compare on; by default the run's episodes or demonstrations, else random ones."""
    json: bool = False
    """Print JSON."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""


def run(arguments: ExportOrder) -> int:
    """Print the largest difference from the policy, and the time of a step of both."""
    from robo_app.training.exporting import export_run

    trained = robo_rl.open_run(arguments.run, runs=arguments.runs)
    done = export_run(trained, arguments.to, arguments.out, step=arguments.step, data=arguments.data)
    if arguments.json:
        print(json.dumps(asdict(done) | {"folder": str(done.folder)}))
        return 0
    print(f"{done.folder}: acts as the policy does, largest difference {done.difference:.1e} of half a range")
    print(f"compared on  {done.observations} observations")
    for name, latency in (("policy", done.own), ("exported", done.exported)):
        print(f"{name:12} {latency.median:.2f} ms a step, 99 % within {latency.p99:.2f} ms")
    return 0
