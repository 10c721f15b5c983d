"""robo-rl record: play episodes in an environment and store every one, whatever happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import tyro
import yaml

from robo_cli.actors import Actor, actor
from robo_cli.display import display
from robo_cli.recipe import require_at_least
from robo_datasets.dataset import Dataset, DatasetWriter
from robo_datasets.recorder import record_episode
from robo_datasets.repair import repair
from robo_rl.discovery import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.spec import specification

EXAMPLES = """robo-rl record robo/ArmPick-v0 --policy scripted --episodes 100 --out data/pick --arguments action_repeat=3
robo-rl record gymnasium/HalfCheetah-v5 --policy RUN --episodes 50 --out data/cheetah
robo-rl record robo/ArmPick-v0 --policy mix:scripted=0.7,random=0.3 --episodes 100 --out data/mixed
robo-rl record robo/ArmPick-v0 --episodes 50 --out data/pick --arguments action_repeat=3 --append --seed 100"""
RECENT = 100  # episodes over which the display averages


@dataclass(frozen=True)
class Record:
    """Record episodes into a dataset; stop it at any time, even by force, and what was recorded is there."""

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV")]
    """"family/task"; `robo-rl envs` lists them."""
    out: Path
    """Folder of the dataset."""
    policy: str = "scripted"
    """"scripted", "random", a run, or mix:NAME=SHARE,NAME=SHARE with one of them drawn for each episode."""
    episodes: int = 10
    """How many."""
    seed: int = 0
    """Reset seed of the first episode; the others follow."""
    noise: float = 0.0
    """Standard deviation of the noise on the scripted expert's action, in [-1, 1] units."""
    stochastic: bool = False
    """Sample a run's actions instead of taking the most likely one."""
    append: bool = False
    """Add to a dataset that exists."""
    arguments: tuple[str, ...] = ()
    """Settings of the environment, such as action_repeat=3."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""

    def __post_init__(self) -> None:
        require_at_least(self, {"episodes": 1, "seed": 0, "noise": 0})


def run(arguments: Record) -> int:
    """Records, showing progress."""
    environment = make_environment(arguments.environment, **settings_of(arguments.arguments))
    choose = actor(arguments.policy, environment, arguments)
    spec = specification(environment)
    if arguments.append:
        dataset = Dataset(arguments.out)
    else:
        card = {"environment": arguments.environment, "policy": arguments.policy, "arguments": list(arguments.arguments)}
        dataset = Dataset.create(arguments.out, spec, card | {"seed": arguments.seed, "noise": arguments.noise})
    with dataset.writer() as writer:
        for found in repair(writer, thorough=False):
            print(f"{found.name}: {found.problem}; {found.action}")
        _record(arguments, writer, choose, environment)
    environment.close()
    print(f"{len(dataset)} episodes in {dataset.path}; `robo-rl data info {dataset.path}` describes them")
    return 0


def _record(
    arguments: Record, writer: DatasetWriter, choose: Callable[[int], Actor], environment: gymnasium.Env[Any, Any]
) -> None:
    returns: deque[float] = deque(maxlen=RECENT)
    successes: deque[bool] = deque(maxlen=RECENT)
    with display(f"record {arguments.environment}", arguments.episodes, "episodes") as shown:
        for index in range(arguments.episodes):
            chosen = choose(arguments.seed + index)
            entry = record_episode(
                environment,
                chosen.policy,
                writer,
                seed=arguments.seed + index,
                source=chosen.name,
                deterministic=not arguments.stochastic,
            )
            returns.append(entry.episode_return)
            successes += [] if entry.success is None else [entry.success]
            metrics = {"rollout/ep_rew_mean": sum(returns) / len(returns)}
            metrics |= {"rollout/success_rate": sum(successes) / len(successes)} if successes else {}
            shown.update(index + 1, metrics)


def settings_of(pairs: tuple[str, ...]) -> dict[str, object]:
    """Returns NAME=VALUE pairs as settings of an environment; raises InvalidSetting."""
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise InvalidSetting("An environment's setting has no value.", got=wrong, allowed="NAME=VALUE")
    return {name: yaml.safe_load(value) for name, _, value in (pair.partition("=") for pair in pairs)}
