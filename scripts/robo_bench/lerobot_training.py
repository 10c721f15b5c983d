"""Train ACT there on a dataset of ours, and ACT here on one that LeRobot wrote.

    python -m robo_bench.lerobot_training --lerobot peers/bin/python --out out/lerobot

Demonstrations of the simulated arm with a camera are recorded and exported; LeRobot trains its ACT on the export. LeRobot
then reads the export and writes it again with its own writer, once with videos and once with PNG; both are read here, and
train `act`. Each stage leaves a folder and an entry in `stages.json`; stages that are there already are skipped, so that an
interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_app.jobs.child_command import command_of
from robo_datasets.dataset import Dataset
from robo_rl.errors import RoboRLError

PEER = Path(__file__).with_name("lerobot_rewriting.py")
ENVIRONMENT = (
    *("robo/ArmReach-v0", "--environment.arguments.action_repeat", "2"),  # 10 Hz: LeRobot's writer takes whole rates alone
    *("--environment.arguments.cameras", "[front]", "--environment.arguments.image_size", "96"),  # below 64 no video
)
CHUNK = 20
SMALL = {"dim_model": 256, "n_heads": 4, "dim_feedforward": 512, "n_encoder_layers": 2, "n_vae_encoder_layers": 2}
"""sizes of LeRobot's ACT with which 50 steps take minutes without a GPU; its own are 512, 8, 3200, 4 and 4"""
LOSS = re.compile(r"step:(\d+) .*loss:([\d.]+)")


@dataclass(frozen=True)
class Order:
    """Options of the command `python -m robo_bench.lerobot_training`."""

    lerobot: str
    """Path of the Python interpreter that can import lerobot."""
    out: Path
    episodes: int = 10
    steps: int = 50

    def run(self, words: Sequence[str], name: str) -> str:
        """Run a command, keep its output in out/logs, and return it; raises RoboRLError if it fails."""
        log = self.out / "logs" / f"{name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment = plain | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        with log.open("w") as file:
            status = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False).returncode
        text = log.read_text(errors="replace")
        if status:
            raise RoboRLError(f"The stage {name} failed.", got="\n".join(text.splitlines()[-5:]), fix=f"read {log}")
        return text

    def ours(self, name: str, *words: str) -> str:
        """Run a `robo-rl` command of this checkout and return its output.

        Args:
            name: Name of the log.
            words: Words of the command, without `robo-rl`.
        """
        return self.run(command_of(words), name)

    def theirs(self, name: str, *words: str) -> str:
        """Run LeRobot's interpreter with these words, log the output under this name, and return it."""
        return self.run([self.lerobot, *words], name)


def record(order: Order, out: Path) -> dict[str, Any]:
    """Record demonstrations of the simulated arm in this process."""
    order.ours("recorded", "record", *ENVIRONMENT, "--episodes", str(order.episodes), "--out", str(out))
    dataset = Dataset(out)
    return {"episodes": len(dataset), "steps": sum(len(episode) for episode in dataset)}


def export(order: Order, out: Path) -> dict[str, Any]:
    """Export the demonstrations in LeRobot's format."""
    order.ours("exported", "data", "convert", str(order.out / "recorded"), "--to", "lerobot", "--out", str(out))
    return {}


def train_there(order: Order, out: Path) -> dict[str, Any]:
    """Train LeRobot's ACT on the export, and load the policy that it saved."""
    policy: dict[str, Any] = {"type": "act", "device": "cpu", "pretrained_backbone_weights": "null", "push_to_hub": "false"}
    policy |= {"chunk_size": CHUNK, "n_action_steps": CHUNK} | SMALL
    settings: dict[str, Any] = {
        "dataset.repo_id": "robo_rl/exported",
        "dataset.root": order.out / "exported",
        "dataset.video_backend": "pyav",
    }
    settings |= {f"policy.{name}": value for name, value in policy.items()}
    settings |= {"steps": order.steps, "batch_size": 4, "log_freq": max(order.steps // 5, 1), "save_freq": order.steps}
    settings |= {"num_workers": 0, "eval_freq": 0, "wandb.enable": "false", "output_dir": out}
    words = [f"--{name}={value}" for name, value in settings.items()]
    text = order.theirs("trained-there", "-m", "lerobot.scripts.lerobot_train", *words)
    losses = {int(step): float(loss) for step, loss in LOSS.findall(text)}
    answer = order.theirs("acted-there", str(PEER), "act", str(order.out / "exported"), str(out))
    return {"losses": losses, "action": json.loads(answer.splitlines()[-1])}


def rewrite(order: Order, out: Path, *, kind: str) -> dict[str, Any]:
    """Let LeRobot write its own dataset of the same frames."""
    order.theirs(out.name, str(PEER), kind, str(order.out / "exported"), str(out))
    return {}


def train_here(order: Order, out: Path, *, of: str) -> dict[str, Any]:
    """Read LeRobot's dataset, and train `act` on it from pictures."""
    data = out.with_name(f"read-{of}")
    shutil.rmtree(data, ignore_errors=True)
    name, *arguments = ENVIRONMENT
    order.ours(data.name, "data", "convert", str(order.out / of), "--out", str(data), "--environment", name, *arguments)
    learner = ("--learner.network.convolutions", "32", "32", "32", "32", "--learner.chunk", str(CHUNK))
    words = ("train", "offline-act", "--dataset", str(data), "--steps", str(order.steps), *learner, "--out", str(out))
    seldom = ("--evaluation.every", "0", "--evaluation.episodes", "5", "--log-every", str(max(order.steps // 5, 1)))
    order.ours(out.name, *words, *seldom)
    (metrics,) = out.glob("*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {"updates": rows[-1]["step"]}


STAGES: Mapping[str, Callable[[Order, Path], dict[str, Any]]] = {
    "recorded": record,
    "exported": export,
    "trained-there": train_there,
    "written-with-videos": lambda order, out: rewrite(order, out, kind="videos"),
    "written-with-pictures": lambda order, out: rewrite(order, out, kind="pictures"),
    "trained-on-videos": lambda order, out: train_here(order, out, of="written-with-videos"),
    "trained-on-pictures": lambda order, out: train_here(order, out, of="written-with-pictures"),
}


def run_stages(order: Order) -> dict[str, Any]:
    """Run the stages that are not done yet, and return the facts of all."""
    path = order.out / "stages.json"
    order.out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name, stage in STAGES.items():
        if name in done:
            continue
        shutil.rmtree(order.out / name, ignore_errors=True)  # of a stage that was interrupted
        start = time.monotonic()
        facts = stage(order, order.out / name)
        done[name] = facts | {"seconds": round(time.monotonic() - start, 1)}
        path.with_suffix(".new").write_text(json.dumps(done, indent=2))
        path.with_suffix(".new").replace(path)
        print(f"{name}: {json.dumps(done[name])}", flush=True)
    return done


def main() -> int:
    """Run all stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lerobot", required=True, help="interpreter with lerobot 0.4.4")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=Order.episodes)
    parser.add_argument("--steps", type=int, default=Order.steps)
    try:
        run_stages(Order(**vars(parser.parse_args())))
    except RoboRLError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
