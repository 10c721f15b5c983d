"""The functions of `robo_rl`: train, resume, evaluate, load a policy, open runs and datasets.

The command line calls the same functions. Packages above this one implement them; the entry points `robo_rl.operations` name
the implementations.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import gymnasium

from robo_rl.code_names import refuse_while_importing
from robo_rl.entry_points import operation
from robo_rl.evaluation.any_policy import EnvironmentLike, as_policy, with_derived_spec
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.evaluation import evaluate as evaluate_policy
from robo_rl.evaluation.video import VideoRequest
from robo_rl.protocols.components import Policy
from robo_rl.runs.callbacks import Callback
from robo_rl.runs.run import NO_UPDATE, Run, Step, find_run
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode


class Recipe(Protocol):
    """Interface of a recipe, the settings that determine a training; implemented by `robo_app.recipes.recipe.Recipe`."""

    @property
    def name(self) -> str:
        """Name of the recipe, a part of the run folder's name."""

    @property
    def algorithm(self) -> str:
        """Name of a learner: entry point of `robo_rl.learners`."""

    @property
    def learner(self) -> Any:
        """Settings of the learner."""

    @property
    def total_steps(self) -> int:
        """Number of steps of all phases of the training together."""


class Dataset(Protocol):
    """Interface of a dataset, recorded episodes of one environment; iterating reads and checks one episode at a time."""

    @property
    def path(self) -> Path:
        """Folder of the dataset."""

    @property
    def spec(self) -> EnvironmentSpec:
        """Spec of the episodes' environment."""

    @property
    def card(self) -> dict[str, Any]:
        """Origin of the dataset: recipe, versions, arguments."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Episode]: ...


RecipeLike = str | os.PathLike[str] | Mapping[str, Any] | Recipe
"""Name of a recipe of the package, path of a YAML file, mapping such as `Run.recipe`, or a Recipe."""


class NothingLearnt(UserWarning):
    """Warning that a training made no update: its policy is as it was at first."""


RunLike = Run | str | os.PathLike[str]
"""What may be passed as a run: a Run, the path of its folder, its name, or "latest"."""


def train(  # noqa: PLR0913 (keyword settings)
    recipe: RecipeLike,
    *,
    seed: int | None = None,
    steps: int | None = None,
    dataset: str | os.PathLike[str] = "",
    labels: str = "",
    collectors: int | Mapping[str, Any] = 0,
    out: str | os.PathLike[str] = "runs",
    progress: bool = False,
    callbacks: Sequence[Callback | str] = (),
    **overrides: Any,
) -> Run:
    """Train a recipe in a new run folder under `out`, evaluate the policy, write the report, and return the run.

        robo_rl.train("arm-pick-rlpd", seed=1, evaluation={"episodes": 100, "videos": 0})
        robo_rl.train("sac", environment=MyEnv, reward=my_function, network=MyEncoder, steps=20_000)

    Ctrl-C, or SIGTERM, saves a checkpoint and raises KeyboardInterrupt; `resume` goes on.

    Args:
        recipe: A recipe, or the name of a learner, such as "sac", which goes with `environment`.
        seed: Seed of everything random.
        steps: Steps of the training.
        dataset: Short for demonstrations={"dataset": ...}.
        labels: Short for demonstrations={"labels": ...}.
        collectors: Processes that act for the learner, or a mapping with `count`, `ray`, `patience`, `most_stale`.
        out: Folder in which the run folder is made.
        progress: Show a bar or lines; by default nothing is printed.
        callbacks: Objects of `robo_rl.Callback`, or names of such classes.
        **overrides: Values of the recipe by key, nested as in its YAML, checked as strictly as on the command line.
            `environment` also takes a name, an environment, a class or a function that returns a new one; `reward` a name or a
            function; `network` an encoder class or the settings of `learner.network` (docs/simulators/own-environments.md).

    Raises:
        UnknownName, InvalidSetting: A key or value is wrong; the error names it.
        NonFiniteUpdate, SimulationFailed: The training diverges.
    """
    refuse_while_importing("train")
    given = {name: value for name, value in {"seed": seed, "steps": steps}.items() if value is not None}
    run: Run = operation("train")(
        recipe, overrides | given, os.fspath(dataset), labels, collectors, Path(out), progress, callbacks
    )
    return _told(run, progress)


def resume(  # noqa: PLR0913 (keyword settings)
    run: RunLike = "latest",
    *,
    steps: int | None = None,
    online_steps: int | None = None,
    dataset: str | os.PathLike[str] = "",
    ray: str = "",
    robot: str = "",
    runs: str | os.PathLike[str] = "runs",
    progress: bool = False,
    callbacks: Sequence[Callback | str] = (),
) -> Run:
    """Continue a run from its newest sound checkpoint, and return it; a finished run is left unchanged.

    Args:
        run: Run, folder, name, or "latest".
        steps: Last step of the training, counted from the beginning of the run; a finished run is continued up to it. None for
            the recipe's.
        online_steps: Steps in the environment after learning from recorded data; 0 for as many as the recipe says.
        dataset: Present folder of the recorded episodes.
        ray: Address of a cluster for the run's collectors from now on.
        robot: Present address of the robot.
        runs: Folder in which runs are searched by name.
        progress: True to show a progress bar or lines.
        callbacks: As for `train`.

    Raises:
        RunNotFound, UnknownName: There is no such run.
        RunError: The run is damaged, or another process is writing it.
        SpecMismatch: The environment has changed since.
    """
    refuse_while_importing("resume")
    where = open_run(run, runs=runs)
    found: Run = operation("resume")(where, steps, online_steps, os.fspath(dataset), ray, robot, progress, callbacks)
    return _told(found, progress)


def _told(run: Run, progress: bool) -> Run:
    """Return the run, and warn if it learnt nothing; with `progress` its lines have said so."""
    if (none := run.description.get(NO_UPDATE)) and not progress:
        warnings.warn(f"{run.path.name}: {none}", NothingLearnt, stacklevel=3)
    return run


def open_run(run: RunLike = "latest", *, runs: str | os.PathLike[str] = "runs") -> Run:
    """Return the run with this folder or name; raises RunNotFound, UnknownName.

    Args:
        run: Run, folder, name, or "latest" for the newest run in `runs`.
        runs: Folder in which runs are searched by name.
    """
    return run if isinstance(run, Run) else find_run(os.fspath(run), Path(runs))


def load_policy(run: RunLike = "latest", step: Step = None, *, runs: str | os.PathLike[str] = "runs") -> Policy:
    """Return the policy of a run; raises the errors of `Run.policy`.

    Args:
        run: Run, folder, name, or "latest".
        step: A step that the run has kept, "best", or None for the newest checkpoint.
        runs: Folder in which runs are searched by name.
    """
    return open_run(run, runs=runs).policy(step)


def evaluate(
    policy: Any,
    environment: EnvironmentLike,
    episodes: int = 50,
    *,
    seeds: Iterable[int] | None = None,
    deterministic: bool = True,
    on_episode: Callable[[Episode], None] | None = None,
    on_incomplete: Callable[[Evaluation], object] | None = None,
    video: VideoRequest | None = None,
) -> Evaluation:
    """Play one episode per seed and return the outcome, with intervals.

        robo_rl.evaluate(model, gymnasium.make("Pendulum-v1"))     # a model of Stable-Baselines3
        robo_rl.evaluate(lambda observation: [0.0], MyEnv)

    Args:
        policy: A policy of a run, or the run itself; a model of Stable-Baselines3; an object with `act` or `predict`; a
            function of the observation. A policy without an `environment_spec` gets the observations that the environment
            returns, and returns the actions that it takes.
        environment: An environment, its name, its class, or a function that returns a new one.
        episodes: Number of episodes, on the first of the fixed evaluation seeds.
        seeds: Seeds to use instead.
        deterministic: True for the most likely action, if the policy offers it.
        on_episode: Called with each recorded episode.
        on_incomplete: Called with the outcome of the episodes that ended, if an error or Ctrl-C ends the evaluation early; the
            error is raised afterwards.
        video: Films to write; None for none.

    Raises:
        SpecMismatch: The policy was made for an environment with another spec.
        InvalidSetting: The object is no policy, or the policy fails.
    """
    chosen = load_policy(policy) if isinstance(policy, Run | str | os.PathLike) else policy
    place = with_derived_spec(environment)
    try:
        how: dict[str, Any] = {"seeds": seeds, "deterministic": deterministic, "video": video}
        how |= {"on_episode": on_episode, "on_incomplete": on_incomplete}
        return evaluate_policy(as_policy(chosen, place, environment), place, episodes, **how)
    finally:
        if not isinstance(environment, gymnasium.Env):
            place.close()


def open_dataset(folder: str | os.PathLike[str]) -> Dataset:
    """Return the recorded episodes of a folder, such as RUN/episodes; raises DatasetNotFound, DatasetError."""
    found: Dataset = operation("open_dataset")(Path(folder))
    return found
