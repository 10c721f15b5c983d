"""Commands of the documentation, and the same commands so small that each takes seconds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from robo_app.recipes.recipe import read_recipe

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if ROOT / "docs" / "examples" not in page.parents),
    *sorted((ROOT / "policies" / "robo_papers").glob("*/page.md")),
]
NOT_HERE = {
    r"\./scripts/|scripts/setup|\.venv-bench/": "installs packages",
    r"pip install|peers/|^python -m venv|ROBO_RL_PEERS|PYTHONPATH=.*peers": "installs packages",
    r"^python tests/real_robot/plant_truth": "minutes; tests/real_robot/test_plant.py asserts its table",
    r"^(ray |export RAY)": "several machines; tests/cluster has them as processes",
    r"^ssh ": "another machine",
    r"--ray \d": "a cluster of other machines; `--ray auto` and tests/cluster are the same code",
    r"--carla-host gpu-machine|CarlaUE4\.sh": "a real CARLA",
    r"lerobot-env/|lerobot/me/": "installs packages, or needs them",
    r"--driver (vendor|ur|ros2) |--limits lab": "a real robot",
    r"--llm endpoint|--replay searches/push": "a server of a language model",
    r"likeness|safe\.yaml|safe-calibrated|transformers:models": "weights that are downloaded",
    r"progress\.yaml|--labels progress|my-reward\.yaml": "a server of a vision-language model",
    r"scored\.yaml|--labels scored": "a server of a vision-language model; policies/robo_papers/mpo has rules",
    r"robot setup ": "a person who drives the hand; tests/real_robot/test_workspace.py has one",
    r"robot calibrate ": "a printed board; tests/real_robot/test_calibration.py draws it",
    r"robot drive|--teleoperator": "a person at a device; tests/cli/test_drive.py is one",
    r"data critique |--labels criticised": "remarks of a person; policies/robo_papers/text2grad has some",
    r"--rater person|--human console|--shadow person|^robo-rl demo hil( --task peg)?$": "a person",
    r"my_package\.": "a package of the reader's own",
    r"--callbacks trackers": "packages of services; both were run against their offline modes",
    r"--out data/by-hand": "a person at the console; tests/cli/test_console.py has one",
    r"my-paper|my_paper|my-arm-reach": "the package of the template; scripts/try_paper installs it",
    r"--learner\.device cuda": "a GPU",
    r"hopper\.hdf5": "a file of D4RL, which is downloaded",
    r"bags/monday": "a recording of a robot; tests/datasets/formats/test_bags.py writes and reads some",
    r"zoo-agents|data get \w": "public sets, which are downloaded; tests/datasets/test_public_sets.py serves some",
    r"highway_env:": "a package of others; tests/cli/test_own_environment.py has one that registers its environment",
    r"--scores scores": "scores of others, which are downloaded; tests/cli/test_published.py makes some",
    r"s3://|hf://": "stores of others; tests/cli/test_sharing.py has a server that speaks their protocol",
    r"dataset\.zarr\.zip": "a dataset of UMI; tests/datasets/formats/test_zarr.py writes one",
    r"convert bridge": "a public set, which is downloaded; tests/datasets/formats/test_rlds.py reads a small one",
    r"convert so101": "a dataset of a robot's owner; tests/datasets/formats/test_adjustments.py adjusts some",
    r"data/cheetah": "a policy of HalfCheetah that earns 2,000, which takes an hour",
    r"leaderboard_evaluator": "CARLA's leaderboard; tests/sims/driving/test_leaderboard_agent.py has its interface",
    r"carla-server --maps": "CARLA's maps, which are downloaded; tests/sims/standin/test_towns.py serves a folder",
    r"bench (all|drive|reward|data)\b": "minutes; tests/bench runs each bench",
    r"robo_papers\.mfrl\.study": "an hour; policies/robo_papers/mfrl/tests/test_mfrl.py has smaller trainings",
    r"--llm local|local_model|mpo\.verdicts|(oni|words_as_beacons)\.study": "98 MB; test_local_model.py has tiny weights",
    r"oni\.throughput": "minutes; policies/robo_papers/oni/tests/test_throughput.py has one case",
    r"(alphadrive|arsq|dppo|explors|group_ppo|gtr|morec|mpo|oer|subpo|text2grad)\.(study|planner)": "minutes; parts are tested",
    r"robo_papers\.stepmix\.study": "minutes; policies/robo_papers/stepmix/tests/test_conservative.py has smaller ones",
    r"reward_machines\.study": "minutes; policies/robo_papers/reward_machines/tests have smaller ones",
    r"robo_bench\.same_rows": "minutes; tests/cli/test_dagger.py has one of a small run",
    r"robo_bench\.steering": "a public set, which is downloaded; tests/datasets/test_public_sets.py makes one",
    r"^hf auth|^source |^conda |make_peers|^docker ": "accounts, installations",
}
"""Pattern of a command -> reason why it cannot run in a test."""


@dataclass(frozen=True)
class Page:
    """A page of the documentation: its commands in order, and the files that it shows."""

    path: Path

    @property
    def name(self) -> str:
        """Path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def blocks(self) -> list[list[str]]:
        """Commands of its blocks for a shell, without comments."""
        return [[*_commands(lines)] for kind, lines in self._fences() if kind in ("bash", "sh", "console")]

    @property
    def commands(self) -> list[str]:
        """Commands of all blocks."""
        return [command for block in self.blocks for command in block]

    @property
    def files(self) -> dict[str, str]:
        """Name -> text of its blocks of YAML or Python that begin with `# NAME.yaml` or `# NAME.py`."""
        shown = ["\n".join(lines) for kind, lines in self._fences() if kind in ("yaml", "python")]
        return {found[1]: text for text in shown if (found := re.match(r"# (\w[\w-]*\.(?:yaml|py))\n", text))}

    def _fences(self) -> Iterator[tuple[str, list[str]]]:
        kind, lines = "", list[str]()
        for line in self.path.read_text().splitlines():
            if not line.strip().startswith("```"):
                lines.append(line)
            elif kind:
                yield kind, lines
                kind = ""
            else:
                kind, lines = line.strip()[3:] or "text", []


def _commands(lines: Sequence[str]) -> Iterator[str]:
    """Yield commands: continued lines are joined, and a loop is its first round."""
    variable = ""
    for line in re.sub(r"(?: +#[^\n]*)?\\\n\s*", "", "\n".join(lines)).splitlines():
        command = re.split(r"(?:^|\s+)# ", line)[0].strip()
        if found := re.match(r"for (\w+) in (\S+)", command):
            variable, value = found[1], found[2]
        elif command == "done":
            variable = ""
        elif command:
            yield command.replace(f"${variable}", value) if variable else command


def reason_of(command: str) -> str | None:
    """Return the reason why a command cannot run here, None if it can."""
    return next((reason for pattern, reason in NOT_HERE.items() if re.search(pattern, command)), None)


FEW = {
    "--pairs": "20",
    "--trials": "1",
    "--confirm": "1",
    "--collectors": "2",
    "--online-steps": "5",
    "--online.steps": "5",
    "--eureka.programs": "1",
    "--eureka.budget": "1",
    "--icpl.rounds": "1",
    "--pictures": "120",
    "--settings.see-steps": "4",
    "--settings.read-steps": "4",
    "--seconds": "0.05",
}
"""Options of the pages -> their values here."""
SEEDS = {"train": "0-1", "sweep": "0-0"}
EVALUATION = "--evaluation.episodes 1 --evaluation.every 0 --evaluation.videos 0 --log-every 0 --checkpoint-every 0"
TINY = {
    "replay.learning_starts": "20",
    "network.hidden": "8",
    "batch_size": "8",
    "num_envs": "2",
    "steps_per_env": "8",
    "epochs": "1",
    "updates_per_step": "1",
    "n_steps": "16",
    "n_envs": "1",
}
"""Settings of learners here, where they have them."""
MORE = {
    "fit-encoder": "--settings.frames 1000 --settings.updates 2",
    "reward fit embedded": "--pictures 120 --settings.see-steps 4 --settings.read-steps 4",
    "reward fit classifier": "--settings.least 1 --settings.updates 4 --settings.image-size 16",
    "reward fit preference": "--settings.epochs 1 --settings.hidden 8",
    "reward search": "--recipe.steps 40 --eureka.rounds 1 --eureka.programs 1 --icpl.rounds 1 --icpl.programs 2",
    "reward compare": "--recipe.steps 120 --recipe.learner.replay.learning-starts 20 --recipe.evaluation.episodes 2 --seeds 0",
    "reward bench": "--pictures 320 --each 2",
    "audit": "--clips 2",
    "resume latest --steps": "--steps 80",
    "refine": "--steps 40 --episodes 1 --seed 0",
    "demo hil": "--steps 40 --episodes 1 --speed 3",
    "bench": "--seconds 0.05 --repeats 1",
    "bench env": "--only HalfCheetah",
    "evaluate": "--episodes 1",
    "play latest --step": "--step 80",
    "play": "--no-browser --port 0 --viewer browser",
    "console": "--no-browser --port 0",
    "data view": "--no-browser --port 0",
    "watch": "--no-browser --port 0",
    "carla-server": "--port 0",
    "robot serve": "--port 0",
    "experiment": "--table",
    "world fit": "--settings.members 2 --settings.elites 2 --settings.hidden 8 --settings.epochs 1",
    "world check": "--episodes 1",
}
"""Beginning of a command -> options that follow those of the page, and count instead of them."""
SERVES = {
    "play": "plays at ",
    "console": " at http",
    "data view": "is shown at ",
    "watch": "shown at ",
    "carla-server": "carla.Client(",
    "robot serve": " at http",
}
"""Beginning of a command that serves until it is interrupted -> a part of the line with its address."""


def small(words: Sequence[str]) -> list[str]:
    """Return the words of a command, after `robo-rl`, with numbers that make it small."""
    if "--family" in words and "--run" in words:  # needs a policy that has learnt: tests/cli/test_families.py
        kept = [*words, ""]
        for option in ("--family", "--run", "--expert"):
            if option in kept:
                del kept[kept.index(option) : kept.index(option) + 2]
        words = [*kept[:-1], "--policy", "random"]
    found = [*words]
    for i, option in enumerate(words[:-1]):
        if option in FEW:
            found[i + 1] = FEW[option]
        elif option == "--seeds" and words[0] in SEEDS:
            found[i + 1] = SEEDS[words[0]]
    if words[0] in ("train", "sweep"):
        found += _small_recipe(words)
    text = " ".join(words)
    if words[0] == "record":
        found += ["--episodes", "6" if "cameras" in text or "carla" in text else "10"]
    return found + [word for start, more in MORE.items() if text.startswith(start) for word in shlex.split(more)]


def _small_recipe(words: Sequence[str]) -> list[str]:
    recipe = read_recipe(words[1])
    has = {name for name in TINY if _has(recipe.learner, name)}
    options = {f"--learner.{name.replace('_', '-')}": TINY[name] for name in TINY if name in has}
    options["--steps"] = "32" if "num_envs" in has else "5" if words[1].startswith("offline-") else "40"
    if recipe.demonstrations.episodes:
        options["--demonstrations.episodes"] = "1"
    if recipe.reward.name == "return-decomposition" or "steps" in recipe.reward.settings:
        options["--reward.settings.steps"] = "4"
    given = set(words)
    return [*(word for pair in options.items() if pair[0] not in given - {"--steps"} for word in pair), *EVALUATION.split()]


def _has(settings: object, name: str) -> bool:
    """Return True if settings have a field, also one of a group: "replay.capacity"."""
    first, _, rest = name.partition(".")
    return hasattr(settings, first) and (not rest or _has(getattr(settings, first), rest))


def served(words: Sequence[str]) -> str | None:
    """Return a part of the line with the address of a command that serves, None for one that ends."""
    if {"--video", "--help", "--once"} & set(words):
        return None
    return next((says for start, says in SERVES.items() if " ".join(words).startswith(start)), None)
