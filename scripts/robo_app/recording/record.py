"""Record episodes into a dataset (`robo-rl record`): options, and the recording itself."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import tyro

from robo_app.arguments.carla_servers import with_server
from robo_app.arguments.free_settings import EnvironmentArguments
from robo_app.display.display import display
from robo_app.display.recording_progress import Progress
from robo_app.recipes.recipe import require_at_least
from robo_app.recording.actors import Actor, actor
from robo_app.recording.cluster_record import recorded_at
from robo_app.recording.families import PLAYED
from robo_app.recording.family_recorder import record_family
from robo_app.recording.family_sources import Sources
from robo_app.training.assembly import recipe_of
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset, DatasetWriter
from robo_datasets.packed_pictures import EXACT, packing
from robo_datasets.recorder import record_episode
from robo_datasets.repair import repair
from robo_rl.environments.levels import level_seed, training_levels
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetError, InvalidSetting
from robo_rl.runs.run import find_run
from robo_rl.spec.environment import specification
from robo_rl.system.threads import use_threads


@dataclass(frozen=True)
class Record:
    """Record episodes into a dataset; stop it at any time, even by force, without losing recorded ones."""

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """"family/task"; `robo-rl envs` lists them."""
    out: Path
    """Folder of the dataset."""
    policy: Annotated[str | None, tyro.conf.arg(metavar="POLICY")] = None
    """"scripted", the default, "random", RUN, RUN@STEP, zoo:PATH, MODULE:FUNCTION from an observation to an action, or
    mix:NAME=SHARE,NAME=SHARE, drawn for each episode."""
    family: Annotated[str | None, tyro.conf.arg(metavar="FAMILY")] = None
    """Instead of a policy: random, medium, medium-replay, replay, expert, play, or mixed-K with K % of expert episodes."""
    run: str = ""
    """For a family of datasets: the run that it is made from, trained with record_episodes."""
    expert: str = ""
    """For a family of datasets: "scripted", RUN, RUN@STEP or zoo:PATH; by default the run's newest policy, or "scripted"."""
    episodes: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Number of episodes; 10 by default, or all if a family copies training episodes."""
    seed: int | None = None
    """Reset seed of the first episode; the others follow. By default 0, and with --append the seeds that no episode has yet."""
    levels: int = 0
    """Levels of the training pool, played in turn, instead of --seed; 0 for a new seed in each episode."""
    noise: float = 0.0
    """Standard deviation of the noise on the scripted expert's action, in [-1, 1] units."""
    stochastic: bool = False
    """Sample a run's actions instead of taking the most likely one."""
    append: bool = False
    """Add to a dataset that exists."""
    pictures: str = EXACT
    """How a new dataset keeps pictures: exact, or smaller and changed: jpeg, jpeg:QUALITY, av1, av1:RATE_FACTOR."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Setting of the environment, such as --environment.arguments.action_repeat 3"""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    carla_host: str = ""
    """For an environment that drives: host of a running CARLA server, instead of a stand-in."""
    carla_port: tuple[int, ...] = ()
    """Port of that CARLA server."""
    ray: str = ""
    """On a Ray cluster: "auto" for one of this machine that ends with the command, or HOST:PORT of a head."""
    jobs: int = 0
    """Environments on the cluster, each with its own simulator; 0 for one per core or per port of --carla-port."""

    def __post_init__(self) -> None:
        if self.ray and self.family is not None:
            raise InvalidSetting("On a cluster a policy plays.", got="--ray with --family", fix="leave --ray out")
        least = (
            {"noise": 0, "levels": 0}
            | ({} if self.episodes is None else {"episodes": 1})
            | ({} if self.seed is None else {"seed": 0})
        )
        require_at_least(self, least)
        if self.family is not None and self.policy is not None:
            raise InvalidSetting("A family says itself who acts.", got="--family and --policy", allowed="one of the two")
        if self.levels and (self.ray or self.family is not None or self.append or self.seed is not None):
            got, fix = "--levels with --ray, --family, --append or --seed", "leave these out"
            raise InvalidSetting("A policy plays levels into a new dataset, here.", got=got, fix=fix)
        if packing(self.pictures) is not None and (self.append or self.family is not None):
            raise InvalidSetting(
                "--pictures is for a new dataset that a policy plays.",
                got=self.pictures,
                fix="leave it out; a dataset keeps all its pictures alike",
            )
        if self.family is None and (self.run or self.expert):
            raise InvalidSetting("--run and --expert are of a family.", fix="name a --family, or the run as --policy")


def record(arguments: Record) -> Dataset:
    """Return the dataset that episodes were recorded into, showing progress."""
    return _record_policy(arguments) if arguments.family is None else _record_family(arguments, arguments.family)


def _record_policy(arguments: Record) -> Dataset:
    settings, policy = with_server(arguments.arguments, arguments), arguments.policy or "scripted"
    with closing(make_environment(arguments.environment, **settings)) as environment:  # the robot must hold, whatever is raised
        return _recorded(arguments, environment, policy, settings)


def _recorded(arguments: Record, environment: gymnasium.Env[Any, Any], policy: str, settings: dict[str, Any]) -> Dataset:
    choose = actor(policy, environment, arguments)
    spec = specification(environment)
    if arguments.append:
        dataset = _appendable(arguments.out, arguments.environment, settings)
    else:
        card: dict[str, Any] = {"environment": arguments.environment, "arguments": settings, "policy": policy}
        card |= {} if arguments.pictures == EXACT else {"pictures": arguments.pictures}
        card |= {"levels": arguments.levels, "split": "train"} if arguments.levels else {}
        dataset = Dataset.create(arguments.out, spec, card | {"seed": arguments.seed or 0, "noise": arguments.noise})
    with dataset.writer() as writer:
        for found in repair(writer, thorough=False):
            print(f"{found.name}: {found.problem}; {found.action}")
        replays = getattr(environment.unwrapped, "replays", True) and dataset.card.get("noise") in (None, arguments.noise)
        if arguments.levels:
            return _record_levels(arguments, writer, choose, environment)
        seeds = _seeds(arguments, dataset.entries(), lambda seed: choose(seed).name if replays else None)
        if arguments.ray:
            environment.close()  # it was here for its spec
            entries = _played_there(arguments, seeds, writer, policy, settings)
        else:
            entries = _played(seeds, writer, choose, environment)
        with closing(entries):
            _record(arguments, entries)
    return dataset


def _record_levels(
    arguments: Record, writer: DatasetWriter, choose: Callable[[int], Actor], environment: gymnasium.Env[Any, Any]
) -> Dataset:
    """Record episodes on levels in turn, each with another seed of its actor."""
    levels = training_levels(environment, arguments.levels)

    def played() -> Generator[Entry, None, None]:
        for episode in range(arguments.episodes or PLAYED):
            name, policy, is_deterministic = choose(episode)
            seed = level_seed("train", levels[episode % len(levels)])
            yield record_episode(environment, policy, writer, seed=seed, source=name, deterministic=is_deterministic)

    with closing(played()) as entries:
        _record(arguments, entries)
    return writer.dataset


def _record(arguments: Record, entries: Iterable[Entry]) -> None:
    progress, episodes = Progress(), arguments.episodes or PLAYED
    number = 0
    with display(f"record {arguments.environment}", episodes, "episodes") as shown:
        try:
            for number, entry in enumerate(entries, 1):
                shown.update(number, progress.add(entry))
        except KeyboardInterrupt:
            seed = "" if arguments.seed is None else f" --seed {arguments.seed + number}"
            rest = f"the same command with --append --episodes {episodes - number}{seed}"
            shown.say(f"interrupted: {number} of {episodes} episodes are kept in {arguments.out}; {rest} goes on")
            raise


def _played(
    seeds: Sequence[int], writer: DatasetWriter, choose: Callable[[int], Actor], environment: gymnasium.Env[Any, Any]
) -> Generator[Entry, None, None]:
    """Yield the catalogue entry of each stored episode."""
    for seed in seeds:
        name, policy, is_deterministic = choose(seed)
        yield record_episode(environment, policy, writer, seed=seed, source=name, deterministic=is_deterministic)


def _played_there(
    arguments: Record, seeds: Sequence[int], writer: DatasetWriter, policy: str, settings: dict[str, Any]
) -> Generator[Entry, None, None]:
    """Yield the catalogue entry of each episode, played on a Ray cluster."""
    facts = {"environment": arguments.environment, "arguments": settings, "policy": policy, "noise": arguments.noise}
    facts |= {"stochastic": arguments.stochastic, "runs": str(arguments.runs), "pictures": _pictures(writer)}
    return recorded_at(arguments.ray, writer, seeds, facts, arguments.jobs)


def _pictures(writer: DatasetWriter) -> str:
    """Return the dataset's picture format, fixed at its creation."""
    return str(writer.dataset.card.get("pictures", EXACT))


def _seeds(arguments: Record, entries: Sequence[Entry], actor_of: Callable[[int], str | None]) -> list[int]:
    """Return the seeds to play; raises InvalidSetting if they would repeat present episodes bit for bit.

    actor_of: seed -> name of its actor, None if seeds do not determine episodes.
    """
    count, present = arguments.episodes or PLAYED, {entry.seed for entry in entries}
    free = (seed for seed in itertools.count() if seed not in present)
    if arguments.seed is None:
        return list(itertools.islice(free, count))
    seeds = list(range(arguments.seed, arguments.seed + count))
    there = {(entry.seed, entry.source) for entry in entries}
    if twice := [seed for seed in seeds if seed in present and (seed, actor_of(seed)) in there]:
        raise InvalidSetting(
            f"{len(twice)} of these episodes are in {arguments.out} already: the same actor, from the same seeds.",
            got=f"--seed {arguments.seed}, which gives seeds {twice[0]} to {twice[-1]} again",
            fix="leave --seed out to go on with seeds that no episode has yet",
        )
    return seeds


def _record_family(arguments: Record, family: str) -> Dataset:
    settings = with_server(arguments.arguments, arguments)
    trained = find_run(arguments.run, arguments.runs) if arguments.run else None
    if trained is not None:
        recipe = recipe_of(trained)
        use_threads(recipe.threads)
        made = (recipe.environment.name, recipe.arguments)
        if made != (arguments.environment, settings or recipe.arguments):
            raise InvalidSetting(
                f"The run {trained.path.name} was trained in another environment.",
                got=f"{arguments.environment} {settings}",
                allowed=f"{made[0]} {made[1]}",
                fix="leave --environment.arguments out to have those of the run",
            )
        settings = made[1]
    environment = make_environment(arguments.environment, **settings)
    places = (trained, arguments.expert, arguments.runs)
    sources = Sources(environment, arguments.environment, settings, *places, seed=arguments.seed or 0, noise=arguments.noise)
    dataset = record_family(family, sources, arguments.episodes, arguments.out, append=arguments.append)
    environment.close()
    return dataset


def _appendable(path: Path, environment: str, settings: dict[str, Any]) -> Dataset:
    """Return a dataset for further episodes of this environment; checks more than the spec, which does not include rewards."""
    dataset = Dataset(path)
    made = (dataset.card.get("environment"), dataset.card.get("arguments"))
    if None not in made and made != (environment, json.loads(json.dumps(settings, default=str))):
        raise DatasetError(
            f"{path} was recorded in another environment.",
            got=f"{environment} {settings}",
            allowed=f"{made[0]} {made[1]}",
            fix="give the same --environment.arguments, or record into another folder",
        )
    if "family" in dataset.card:
        raise DatasetError(
            f"{path} is a family of datasets, whose card says what is in it.",
            got="--policy",
            allowed=f"--family {dataset.card['family']}, to complete it",
            fix="record into another folder",
        )
    return dataset
