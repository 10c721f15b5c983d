"""Run folder: recipe, versions, results, and checkpoints from which a training resumes.

runs/<time>-<recipe>-<seed>/  recipe.yaml  run.json  spec.json  metrics.jsonl  events.out.tfevents.*
                              checkpoints/  best/  evaluations/  policies/  episodes/  videos/  evaluation.json  report.html
                              status.json  messages.jsonl
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from robo_rl.entry_points import operation
from robo_rl.errors import InvalidSetting, RoboRLError, RunError, RunNotFound, UnknownName
from robo_rl.evaluation.evaluation import FIRST_SEED, Evaluation
from robo_rl.protocols.components import Policy
from robo_rl.runs.best_policy import BEST, best_step
from robo_rl.runs.checkpoints import Checkpoint, checkpoint_steps, has_checkpoint, load_checkpoint, save_checkpoint
from robo_rl.runs.status import LOCK, RunStatus, State, error_text
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.durable_files import exclusive_lock, write_durably
from robo_rl.system.plain_files import read_object, read_yaml, require_plain
from robo_rl.types import Metrics, StateDict

Step = int | Literal["best"] | None
"""Step of a policy: a number, "best" for the best one in the evaluations of the training, or None for the newest."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MESSAGES = "messages.jsonl"
NO_UPDATE = "no_update"
"""Key in run.json: reason why the policy was never updated; empty if it was."""
_PACKAGES = (
    "robo-rl",
    "numpy",
    "torch",
    "mujoco",
    "dm_control",
    "gymnasium",
    "stable-baselines3",
    "minigrid",
    "metaworld",
    "safety-gymnasium",
)


class Curve(NamedTuple):
    """Values of one logged metric over a training."""

    steps: npt.NDArray[np.int64]
    """(N,) environment steps, or updates of a learner from recorded data"""
    values: npt.NDArray[np.float64]
    """(N,) values at these steps"""


class Run:
    """Folder of one training, and its contents. To write to it, use the run as a context manager, which holds a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics: IO[str] | None = None
        self._lock: IO[bytes] | None = None
        self._status, self._is_announced = RunStatus(), False

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def create(cls, root: Path, *, recipe_name: str, seed: int, recipe: str, spec: EnvironmentSpec) -> Run:
        """Make the folder `<time>-<recipe>-<seed>` under `root`, with the resolved recipe, the versions and the spec.

        Raises InvalidSetting if `recipe_name` cannot be part of a folder name.
        """
        if not _NAME.fullmatch(recipe_name):
            raise InvalidSetting("The name of the recipe cannot name a folder.", got=recipe_name, allowed=_NAME.pattern)
        run = cls(_new_folder(root / f"{datetime.now():%Y%m%d-%H%M%S}-{recipe_name}-{seed}"))
        write_text(run.path / "recipe.yaml", recipe)
        write_text(run.path / "spec.json", json.dumps(spec.to_json(), indent=1))
        write_text(run.path / "run.json", json.dumps(circumstances() | {"seed": seed, "resumes": []}, indent=1))
        return run

    @property
    def spec(self) -> EnvironmentSpec:
        """Spec of the environment that the run was trained in; raises RunError for a damaged file."""
        path = self.path / "spec.json"
        found = read_object(path)
        try:
            return EnvironmentSpec.from_json(found)
        except (RoboRLError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise RunError(f"{path} is damaged.", got=f"{type(error).__name__}: {error}", fix="take it from a copy") from None

    @property
    def recipe(self) -> dict[str, Any]:
        """Recipe of the run with all defaults written out, accepted by `robo_rl.train`. Raises RunError for a damaged file."""
        found, path = read_yaml(self.path / "recipe.yaml"), self.path / "recipe.yaml"
        if not isinstance(found, dict):
            fix = "take it from a copy, or train again"
            raise RunError(f"{path} is damaged.", got=type(found).__name__, allowed="a YAML mapping", fix=fix)
        return found

    @property
    def description(self) -> dict[str, Any]:
        """Content of run.json: versions, machine, results and other facts about the run."""
        return read_object(self.path / "run.json")

    def describe(self, **facts: Any) -> None:
        """Add facts to run.json, by name."""
        write_text(self.path / "run.json", json.dumps(self.description | facts, indent=1))

    def __enter__(self) -> Self:
        """Open the run for writing; raises RunError if another process is writing it."""
        what, fix = f"Another process is writing the run {self.path.name}.", "wait for it, or stop it, then try again"
        self._lock = exclusive_lock(self.path / LOCK, RunError(what, fix=fix))
        self._status, self._is_announced = RunStatus.here(self.path), False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_announced:  # else nothing was changed
            state: State = "finished" if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            reason = error_text(error) if state == "failed" and error else ""
            replace(self._status, state=state, activity="", error=reason).write(self.path)
        self._close()

    def announce(self, step: int, activity: str) -> None:
        """Write the reached step and the present activity to status.json; does nothing if the disk is full."""
        self._is_announced = True
        self._status = replace(self._status, step=step, activity=activity)
        self._status.write(self.path)

    def note(self, step: int, message: str) -> None:
        """Append a message about the training to messages.jsonl; does nothing if the disk is full."""
        with suppress(OSError), (self.path / MESSAGES).open("a") as file:
            file.write(json.dumps({"step": step, "time": round(time.time(), 3), "message": message}) + "\n")

    def log(self, step: int, metrics: Metrics, *, elapsed: float) -> None:
        """Append a line to metrics.jsonl; elapsed: time since the start of the training [s]."""
        if not self._is_announced:
            self.announce(step, "training")
        if self._metrics is None:
            self._metrics = (self.path / "metrics.jsonl").open("a")
        self._metrics.write(json.dumps({"step": step, "time": round(elapsed, 3), **metrics}) + "\n")
        self._metrics.flush()

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete lines of metrics.jsonl; an incomplete last line is left out."""
        return _lines_of(self.path / "metrics.jsonl")

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages about the training in order; each has `step`, `time` [s since 1970] and `message`."""
        return _lines_of(self.path / MESSAGES)

    def curve(self, tag: str) -> Curve:
        """Return a metric of metrics.jsonl, such as "eval/success_rate"; raises UnknownName with similar tags."""
        lines = self.metrics()
        found = [(line["step"], line[tag]) for line in lines if isinstance(line.get(tag), int | float)]
        if not found:
            tags = {name for line in lines for name in line} - {"step", "time"}
            raise UnknownName("metric", tag, tags)
        steps, values = zip(*found, strict=True)
        return Curve(np.asarray(steps, np.int64), np.asarray(values, np.float64))

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Steps whose policy can be loaded, ascending."""
        folders = (self.path / "checkpoints", self.path / BEST, self.path / "policies")
        return tuple(sorted({step for folder in folders for step in checkpoint_steps(folder)}))

    @property
    def best(self) -> int | None:
        """Step of the best policy by success rate, then return, in the evaluations of the training.

        None without evaluations.
        """
        return best_step(self.path)

    @property
    def evaluation(self) -> Evaluation | None:
        """Evaluation at the end of the training; None before the end."""
        path = self.path / "evaluation.json"
        return Evaluation.read(path) if path.exists() else None

    @property
    def report(self) -> Path:
        """Path of the report, which is written at the end of the training."""
        return self.path / "report.html"

    @property
    def evaluation_files(self) -> dict[int, Path]:
        """Step -> file of each evaluation during the training, ascending; evaluations in other environments are left out."""
        files = sorted((self.path / "evaluations").glob("*.json"))
        return {int(file.stem): file for file in files if file.stem.isdigit()}

    def policy(self, step: Step = None) -> Policy:
        """Return the policy of a sound checkpoint.

        step: one of `checkpoints`, "best", or None for the newest.

        Raises:
            SpecMismatch: The environment has changed since the training.
            InvalidSetting: The run has not kept this step.
            RunError: The run is damaged.
        """
        found: Policy = operation("load_policy")(self, step)
        return found

    def evaluate(  # noqa: PLR0913 (keyword settings)
        self,
        episodes: int = 50,
        *,
        seed: int = FIRST_SEED,
        environment: str = "",
        routes: str = "",
        arguments: Mapping[str, Any] | None = None,
        videos: int | None = None,
        stochastic: bool = False,
        attempts: int = 1,
        split: str = "",
        step: Step = None,
        on_incomplete: Callable[[Evaluation], object] | None = None,
    ) -> Evaluation:
        """Evaluate a policy of the run, as `robo-rl evaluate` does.

        Evaluations of other steps, and in other environments, are stored in the run; so are the episodes that ended before an
        error or Ctrl-C, which is raised afterwards.

        Args:
            episodes: Number of episodes.
            seed: First seed; the others are seed + 1, ...
            environment: Another environment than that of the training; one of the same family is made with the same arguments.
            routes: Another set of routes for a run that drives, such as town-test.
            arguments: Arguments of the environment that differ from those of the training.
            videos: Largest number of films; None for 2 in another environment, and 0 in that of the training, which has films
                already.
            stochastic: True to sample actions; always done if the recipe says so.
            attempts: Episodes at each seed, with sampled actions, to estimate the probability that one of several attempts
                succeeds.
            split: Levels of the training, the validation or the test, instead of `seed` (docs/training/curricula.md).
            step: Step of the policy, "best", or None for the newest.
            on_incomplete: Called with the outcome of the episodes that ended, if the evaluation ends early.
        """
        found: Evaluation = operation("evaluate")(
            self,
            episodes,
            seed=seed,
            environment=environment,
            routes=routes,
            arguments=arguments or {},
            videos=videos,
            stochastic=stochastic,
            attempts=attempts,
            split=split,
            step=step,
            on_incomplete=on_incomplete,
        )
        return found

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint that a kill cannot damage; the metrics up to it are made durable first."""
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())
        return save_checkpoint(self.path / "checkpoints", checkpoint)

    def keep_policy(self, step: int, learner: StateDict) -> None:
        """Keep the learner of a step permanently, without the parts that only a resume needs, such as the replay memory."""
        save_checkpoint(self.path / "policies", Checkpoint(step, {"learner": learner}), kept=0)

    def load(self, step: Step = None) -> Checkpoint:
        """Return a checkpoint that verifies.

        step: one of `checkpoints`, "best", or None for the newest. An older checkpoint may hold only the learner.

        Raises:
            CheckpointCorrupt: The checkpoint is damaged.
            InvalidSetting: The run has not kept this step; the message lists the kept ones.
        """
        folders = [self.path / "checkpoints", self.path / BEST, self.path / "policies"]
        if step is None:
            return load_checkpoint(folders[0])
        step = self.numbered(step)
        for folder in folders:
            if step in checkpoint_steps(folder):
                return load_checkpoint(folder, step)
        raise InvalidSetting(
            f"The run {self.path.name} has kept no policy of that step.",
            got=step,
            allowed=", ".join(map(str, self.checkpoints)) or "no step",
            fix="train with --record-episodes, which keeps the policy of every evaluation",
        )

    def numbered(self, step: int | str) -> int:
        """Return the number of a kept step for a number or "best"; raises InvalidSetting for a step that is not kept."""
        if isinstance(step, int) and not isinstance(step, bool):
            return step
        if step != BEST:
            allowed = f'a number, or "{BEST}"'
            raise InvalidSetting("This is no step.", got=repr(step), allowed=allowed)
        if self.best is None:
            fix = "train with --evaluation.every STEPS, by whose evaluations the best one is chosen"
            raise InvalidSetting(f"The run {self.path.name} has no best policy: it was not evaluated in training.", fix=fix)
        return self.best

    @property
    def has_checkpoint(self) -> bool:
        """False if the run was interrupted before it saved a checkpoint."""
        return has_checkpoint(self.path / "checkpoints")

    def rewind(self, step: int) -> None:
        """Delete metrics, messages, evaluations and kept policies after `step`, because a resumed run will write them again."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        write_text(self.path / "metrics.jsonl", "".join(kept))
        messages = [json.dumps(each) + "\n" for each in self.messages() if each["step"] <= step]
        if messages or (self.path / MESSAGES).exists():
            write_text(self.path / MESSAGES, "".join(messages))
        for later, file in self.evaluation_files.items():
            if later > step:
                file.unlink()
        for folder in (self.path / "policies", self.path / BEST):
            for later in checkpoint_steps(folder):
                if later > step:
                    shutil.rmtree(folder / f"{later:010d}")

    def _close(self) -> None:
        for file in (self._metrics, self._lock):
            if file is not None:
                file.close()
        self._metrics = self._lock = None


def is_run(path: Path) -> bool:
    """Return True if a folder is the folder of one training; a folder of several trainings has a recipe, but no spec."""
    return (path / "recipe.yaml").is_file() and (path / "spec.json").is_file()


def find_run(name: str, root: Path) -> Run:
    """Return the run with this path, or with this folder name under `root`; "latest" is the newest run there.

    Raises:
        RunNotFound: The folder is not a run, such as a folder of several trainings.
        UnknownName: There is no such folder.
    """
    runs = {path.parent.name: path.parent for path in sorted(root.glob("*/recipe.yaml")) if is_run(path.parent)}
    if name == "latest" and runs:
        return Run(max(runs.values(), key=_age))
    path = Path(name) if is_run(Path(name)) else runs.get(name)
    if path is not None:
        return Run(path)
    for folder in (Path(name), root / name):
        if folder.is_dir():
            raise _not_a_run(folder)
    place = f"runs are looked for in {root.absolute()}/; --runs names another folder"
    if several := next((folder.parent for folder in sorted(root.glob("*/runs")) if _trainings(folder.parent)), None):
        place = f"{place}: {several}/runs has those of several trainings"
    if name.endswith(".zip"):
        place = f"a model of Stable-Baselines3 is zoo:{name}; from Python load it, and robo_rl.evaluate(model, environment)"
    raise UnknownName("run", name, [*runs, *(["latest"] if runs else [])], fix=place)


def _age(path: Path) -> tuple[datetime, float]:
    """Return a sort key by start time; of copies, which have the same start time, the one written first is the newest."""
    written = (path / "recipe.yaml").stat().st_mtime
    try:
        started = datetime.fromisoformat(read_object(path / "run.json")["started"]).astimezone()
    except (RunError, OSError, KeyError, TypeError, ValueError):
        started = datetime.fromtimestamp(written).astimezone()
    return started, -written


def _not_a_run(folder: Path) -> RunNotFound:
    """Return the error for a folder that is not a run, with a remedy for a folder of several trainings."""
    trainings = _trainings(folder)
    if not trainings:
        is_dataset = (folder / "dataset.json").is_file()
        return RunNotFound(
            f"{folder} is not a run folder.",
            got="a dataset" if is_dataset else folder,
            allowed="a folder that holds recipe.yaml and spec.json",
            fix=f"robo-rl data info {folder} describes it" if is_dataset else "name a folder in runs/, or latest",
        )
    return RunNotFound(
        f"{folder} holds {len(trainings)} trainings and is not a run itself.",
        got=folder,
        allowed=f"one of them, such as {trainings[-1]}, or the newest: latest --runs {folder}/runs",
        fix="name one of them; the command that made the folder goes on with all that are not finished",
    )


def _trainings(folder: Path) -> list[Path]:
    """Return the runs inside a folder of seeds, of a sweep or of a study."""
    return [path.parent for path in sorted(folder.glob("runs/*/recipe.yaml")) if is_run(path.parent)]


def _lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file of JSON lines, [] if it does not exist; an incomplete last line is left out."""
    require_plain(path)
    lines = path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else []
    return [_line_in(line, path, number) for number, line in enumerate(lines, 1) if line.endswith("\n")]


def _line_in(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("step"), int):
        raise RunError(f"Line {number} of {path} is damaged.", got=line.strip()[:80], fix="remove that line")
    return found


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file atomically and durably."""
    write_durably(path, text.encode())


def circumstances() -> dict[str, Any]:
    """Describe under which circumstances this process runs, as JSON values: versions, commit, machine, command line."""
    return {
        "started": datetime.now().astimezone().isoformat(timespec="microseconds"),
        "command": " ".join([_program(sys.argv[0]), *sys.argv[1:]]),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": len(os.sched_getaffinity(0))},
    }


def _program(path: str) -> str:
    """Return the name of the running program: robo-rl, however it was started, or a script."""
    name = Path(path).name
    return "robo-rl" if name == "main.py" and Path(path).parent.name == "robo_cli" else name or "python"


def _new_folder(path: Path) -> Path:
    for suffix in ("", *(f".{n}" for n in range(2, 100))):
        candidate = path.with_name(path.name + suffix)
        try:
            candidate.mkdir(parents=True)
            return candidate
        except FileExistsError:
            time.sleep(0.01)
    raise RunError(f"Cannot make a new run folder next to {path}.", fix="remove old runs")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        lines: Mapping[str, str] = dict(
            line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().replace("\t", "").splitlines() if ":" in line
        )
        return lines["model name"].strip()
    except (OSError, KeyError):
        return platform.processor() or platform.machine()
