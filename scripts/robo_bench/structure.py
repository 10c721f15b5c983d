"""Count what a reader of the project meets: files and calls of one step of training, files of a learner, settings, inheritance.

    python -m robo_bench.structure
    python -m robo_bench.structure --json > after.json

The table has no verdict: it is for comparing two states of the project. Calls are those of Python functions; files are
those of this repository, or of Stable-Baselines3 for its own row.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np

from robo_rl.entry_points import known, load
from robo_rl.settings import updated

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (
    "robo_rl",
    "sims/robo_sims",
    "policies/robo_policies",
    "real_robot/robo_real",
    "datasets/robo_datasets",
    "scripts/robo_app",
)
READ = {"sac": "sac", "ppo": "ppo", "iql": "iql", "group-ppo": "episodic"}
HOMES = tuple(f"{ROOT / folder}/" for folder in PRODUCT)
KERNELS = ".accelerated"
"""Folder of kernels, which a reader need not open: each has its reference beside it."""
MANY = 25
"""Fields from which on settings count as many."""


def paths() -> Iterator[Path]:
    """Yield the path of every Python module of the workbench, without tests and benchmarks."""
    for folder in PRODUCT:
        yield from sorted((ROOT / folder).rglob("*.py"))


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Yield every module of the product, parsed."""
    for path in paths():
        yield path, ast.parse(path.read_text())


def traced(action: Callable[[], object], within: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of files and of Python calls of an action whose code lies under one of the folders."""
    files, calls = set[str](), 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(within):
            files.add(frame.f_code.co_filename)
            calls += 1

    threading.setprofile(note)  # of threads that begin now
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(files), calls


def sac_step(engine: str) -> tuple[int, int]:
    """Return files and calls of one environment step of SAC and its update on HalfCheetah."""
    from robo_policies.learners.sac import SACConfig
    from robo_rl.environments.make import make_environment
    from robo_rl.spec.environment import specification
    from robo_rl.training.off_policy import online_training

    environment = make_environment("gymnasium/HalfCheetah-v5")
    network, replay = {"hidden": (16, 16), "engine": engine}, {"learning_starts": 20, "capacity": 1_000}
    config = updated(SACConfig(), network=network, replay=replay, batch_size=16)
    learner = config.build(specification(environment), 0)
    training = online_training(environment, learner, config.sampling, steps=60, seed=0)
    nothing = lambda *_, **__: None  # noqa: E731
    observer: Any = SimpleNamespace(on_step=nothing, on_episode=nothing, on_metrics=nothing)
    training.run(observer)
    training.steps = training.step + 1
    found = traced(lambda: training.run(observer), HOMES)
    environment.close()
    return found


def robot_step() -> tuple[int, int]:
    """Count how much code one step runs through: SAC's policy acts on a guarded arm in this process, down to the driver.

    Returns:
        The number of source files, and the number of function calls.
    """
    from robo_policies.learners.sac import SACConfig
    from robo_real.fake_reach import fake_reach
    from robo_rl.rollout.episode import Rollout
    from robo_rl.spec.environment import specification

    environment = fake_reach()
    config = updated(SACConfig(), network={"hidden": (16, 16)}, replay={"capacity": 1_000})
    policy = config.build(specification(environment), 0).policy
    episode = Rollout(environment, policy, seed=0)
    episode.step()
    found = traced(episode.step, HOMES)
    environment.close()
    return found


def peer_step() -> tuple[int, int]:
    """Count how much code one environment step of Stable-Baselines3's SAC on HalfCheetah runs through, with its update.

    Returns:
        The number of source files, and the number of function calls.
    """
    import gymnasium
    import stable_baselines3

    algorithm = stable_baselines3.SAC(
        "MlpPolicy",
        gymnasium.make("HalfCheetah-v5"),
        learning_starts=20,
        batch_size=16,
        policy_kwargs={"net_arch": [16, 16]},
        device="cpu",
        buffer_size=1_000,
    )
    algorithm.learn(60)
    return traced(lambda: algorithm.learn(1, reset_num_timesteps=False), (str(Path(stable_baselines3.__file__).parent),))


class Completion(BaseHTTPRequestHandler):
    """HTTP handler that answers every chat completion request with the same text."""

    REPLY = json.dumps({"model": "m", "choices": [{"message": {"content": '{"completion_progress": 0.5}'}}]}).encode()

    def do_POST(self) -> None:
        """Answer the request with the fixed reply."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.REPLY)))
        self.end_headers()
        self.wfile.write(self.REPLY)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def judged_label() -> tuple[int, int]:
    """Count how much code runs from the first question about a recorded episode, over HTTP, to its labels in a label set.

    Returns:
        The number of source files, and the number of function calls.
    """
    from robo_datasets.dataset import Dataset
    from robo_datasets.labels import LabelSet
    from robo_rl.environments.make import make_environment
    from robo_rl.rewards.judges.rewards import JudgeProgress
    from robo_rl.rollout.episode import RandomPolicy, rollout
    from robo_rl.spec.environment import specification

    environment = make_environment("robo/ArmReach-v0", cameras=["front"])
    spec = specification(environment)
    episode = rollout(environment, RandomPolicy(spec, 0), seed=0)
    environment.close()
    with ThreadingHTTPServer(("127.0.0.1", 0), Completion) as server, TemporaryDirectory() as folder:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked = {"model": "m", "base_url": f"http://127.0.0.1:{server.server_port}/v1", "terms": {"cache": f"{folder}/answers"}}
        reward = JudgeProgress(camera="front", judge_settings=asked)
        dataset = Dataset.create(Path(folder) / "data", spec)
        with dataset.writer() as writer:
            identity = writer.add(episode).identity
        labels = LabelSet(dataset, "labels")

        def label() -> None:
            for found in reward.label_all([episode]):
                labels.add(identity, found)

        counted = traced(label, HOMES)
        server.shutdown()
    return counted


def read_files(module: str, package: str = "robo_policies") -> set[Path]:
    """Return the files that a reader of a learner opens inside policies, following imports from its module."""
    home, seen, waiting = ROOT / "policies", set[Path](), [f"{package}.learners.{module}"]
    while waiting:
        path = home / Path(*waiting.pop().split(".")).with_suffix(".py")
        if path in seen or not path.exists():
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.ImportFrom)
                and (node.module or "").startswith(package)
                and KERNELS not in (node.module or "")
            ):
                waiting += [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return seen


def learner_classes() -> dict[str, list[str]]:
    """Return the classes in policies with the names of their bases."""
    found = {}
    for path, tree in modules():
        if "robo_policies" in path.parts:
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                    found[node.name] = [ast.unparse(base) for base in bases]
    return found


def heirs() -> tuple[list[str], list[str]]:
    """Return the learners and the settings whose class inherits from those of a learner that has an entry point."""
    settings = {load("learners", name).__name__ for name in known("learners")}
    learners = {name.removesuffix("Config") for name in settings}
    classes = learner_classes()
    found = [sorted(name for name, bases in classes.items() if {*bases} & concrete) for concrete in (learners, settings)]
    return found[0], found[1]


def setting_counts(*, in_groups: bool) -> dict[str, int]:
    """Return the number of settings of each learner, with or without those of its groups."""

    def count(kind: Any) -> int:
        defaults = [each.default for each in dataclasses.fields(kind)]
        groups = [each for each in defaults if dataclasses.is_dataclass(each)]
        return len(defaults) - len(groups) + (sum(map(count, groups)) if in_groups else 0)

    kinds = {name: load("learners", name) for name in known("learners")}
    return {name: count(kind) for name, kind in kinds.items() if dataclasses.is_dataclass(kind)}


def protocols() -> int:
    """Return the number of Protocol classes of the product."""
    return sum(
        isinstance(node, ast.ClassDef) and any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)
        for _, tree in modules()
        for node in ast.walk(tree)
    )


def addresses() -> list[str]:
    """Return the prefixes of environment names that are followed by an address, such as "robot:"."""
    return sorted(f"{name}:" for name in known("environments") if hasattr(load("environments", name), "at"))


def steppers() -> list[str]:
    """Return the paths of modules, beside Rollout, that call `step` of an environment in training code."""
    called = re.compile(r"\b(?:stepping|environments?|_environments?|stage)\.step\b")
    homes = ("robo_rl/training", "policies/robo_policies")
    return sorted(
        str(path.relative_to(ROOT))
        for path in paths()
        if str(path.relative_to(ROOT)).startswith(homes) and called.search(path.read_text())
    )


def rows() -> Iterator[tuple[str, Any]]:
    """Yield each thing that is counted and its figure."""
    yield "Python files of the product", len([*paths()])
    yield "lines of the product", sum(len(path.read_text().splitlines()) for path in paths())
    for engine in ("reference", "accelerated"):
        yield f"SAC step and update, engine {engine}: files, calls", sac_step(engine)
    yield "the same of Stable-Baselines3: files, calls", peer_step()
    yield "question of a judge to its labels: files, calls", judged_label()
    yield "policy to driver, arm in this process: files, calls", robot_step()
    for name, module in READ.items():
        yield f"files of {name} inside policies", len(read_files(module))
    yield "learners", len(known("learners"))
    learners, settings = heirs()
    yield "learners that inherit from a learner", len(learners)
    yield "settings that inherit from those of a learner", len(settings)
    counted, own = setting_counts(in_groups=True), setting_counts(in_groups=False)
    yield f"learners with {MANY} settings or more", sum(count >= MANY for count in counted.values())
    yield "learners with more than 20 settings outside groups", sum(count > 20 for count in own.values())
    yield "most settings of a learner", max(counted.items(), key=lambda item: item[1])
    yield "median of settings", float(np.median([*counted.values()]))
    yield "Protocols", protocols()
    yield "prefixes of environment names", addresses()
    yield "modules of trainings that step an environment", steppers()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m robo_bench.structure", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    figures = dict(rows()) if parser.parse_args().json else None
    if figures is not None:
        print(json.dumps(figures, indent=1))
        return
    for name, figure in rows():
        told = ", ".join(map(str, figure)) if isinstance(figure, tuple | list) else figure
        print(f"{name:56} {told}", flush=True)


if __name__ == "__main__":
    main()
