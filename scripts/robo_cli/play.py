"""robo-rl play: watch the policy of a run act, in MuJoCo's window, in the browser, or in a film."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import tyro

import robo_rl
from robo_cli.assembly import judged_environment_of, recipe_of
from robo_cli.data_view import has_display
from robo_cli.loops import ROBOT
from robo_cli.play_window import Window, has_window, simulation_of
from robo_cli.playback import Moment, Player, Screen, episode_of, summary
from robo_cli.recipe import Recipe, require_at_least
from robo_rl.errors import InvalidSetting, RenderingUnavailable, UnknownName, require_allowed
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.evaluation.video import HOLD, Frame, decisions_per_second, render_mode_for_films, write_mp4
from robo_rl.protocols.components import Policy
from robo_rl.runs.run import Run
from robo_rl.spec.environment import specification
from robo_rl.system.threads import tensor_threads

EXAMPLES = """robo-rl play latest
robo-rl play latest --seed 1000007 --speed 0.5     (the eighth episode of every evaluation, at half speed)
robo-rl play RUN --step 5000     (the policy as it was; a run keeps it with record_episodes)
robo-rl play RUN --video policy.mp4 --episodes 3"""


@dataclass(frozen=True)
class Play:
    """Show the policy of a run at the environment's own rate: in MuJoCo's window if there is a display, else in the browser."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    step: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Step of the policy; by default that of the newest checkpoint."""
    seed: int = FIRST_SEED
    """Reset seed of the first episode; the others follow."""
    episodes: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Number of episodes; by default until Ctrl-C, and one for a film."""
    stochastic: bool = False
    """Sample actions instead of taking the most likely one, as with evaluation.stochastic of a recipe."""
    speed: float = 1.0
    """Times the environment's own rate."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write a film (.mp4) of the episodes, one after another, and show nothing."""
    viewer: Literal["auto", "window", "browser"] = "auto"
    """window: MuJoCo's, with its forces, contacts and cameras. browser: pictures on a page of this machine."""
    port: int = 8643
    """Port of the page on 127.0.0.1, which no other machine reaches; 0 takes any free one."""
    browser: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Leave the browser alone; without this the page opens in it if there is a display."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""

    def __post_init__(self) -> None:
        require_at_least(self, {"seed": 0, "port": 0} | ({} if self.episodes is None else {"episodes": 1}))
        require_allowed(self, {"speed": (0.0 < self.speed < float("inf"), "more than 0")})
        if self.video is not None and self.video.suffix != ".mp4":
            raise InvalidSetting("A film is an mp4 file.", got=str(self.video), fix=f"--video {self.video.with_suffix('.mp4')}")


def run(arguments: Play) -> int:
    """Plays until Ctrl-C, the window is closed, or the episodes are played."""
    trained = robo_rl.open_run(arguments.run, runs=arguments.runs)
    recipe = recipe_of(trained)
    if recipe.environment.name.startswith(ROBOT):
        raise InvalidSetting(
            "A robot is not moved to show a policy.",
            got=f"environment {recipe.environment.name}",
            fix=f"robo-rl evaluate {trained.path} moves it, watched in robo-rl console",
        )
    with tensor_threads(recipe.threads):
        policy, environment = trained.policy(arguments.step), judged_environment_of(recipe)
        if arguments.video is None and _wants_window(arguments, environment):
            with closing(environment):
                return _in_window(arguments, _player(arguments, recipe, environment, policy), environment)
        with closing(environment):
            mode = render_mode_for_films(environment)
        with closing(_drawing(recipe, mode)) as drawing:
            player = _player(arguments, recipe, drawing, policy)
            if arguments.video is not None:
                return _film(arguments, recipe, drawing, policy, arguments.video)
            return _in_browser(arguments, player, drawing, trained)


def _wants_window(arguments: Play, environment: gymnasium.Env[Any, Any]) -> bool:
    """Return whether to open MuJoCo's window; raises InvalidSetting if it is requested with another simulator."""
    is_mujoco = simulation_of(environment) is not None
    if arguments.viewer == "window" and not is_mujoco:
        raise InvalidSetting(
            f"{specification(environment).name} is not simulated by MuJoCo, whose window shows nothing else.",
            got="--viewer window",
            fix="--viewer browser",
        )
    return arguments.viewer == "window" or (arguments.viewer == "auto" and is_mujoco and has_display() and has_window())


def _is_deterministic(arguments: Play, recipe: Recipe[Any]) -> bool:
    return not (arguments.stochastic or recipe.evaluation.stochastic)


def _in_window(arguments: Play, player: Player, environment: gymnasium.Env[Any, Any]) -> int:
    with closing(Window(environment, player)) as window:
        print(
            "space pauses, R plays the same seed again, N the next one, Tab shows MuJoCo's panel   (Ctrl-C ends it)",
            flush=True,
        )
        return _played(arguments, player, window)


def _in_browser(arguments: Play, player: Player, environment: gymnasium.Env[Any, Any], trained: Run) -> int:
    from robo_cli.play_page.server import PlayServer

    with closing(PlayServer(f"{trained.path.name} in {specification(environment).name}", player, arguments.port)) as page:
        print(f"{trained.path} plays at {page.server.url}   (Ctrl-C ends it)", flush=True)
        if arguments.browser and has_display():
            webbrowser.open(page.server.url)
        return _played(arguments, player, page)


def _played(arguments: Play, player: Player, screen: Screen) -> int:
    with suppress(KeyboardInterrupt):
        player.run(screen, arguments.seed, arguments.episodes)
    print(summary(player.outcomes))
    return 0


def _film(arguments: Play, recipe: Recipe[Any], environment: gymnasium.Env[Any, Any], policy: Policy, path: Path) -> int:
    outcomes: list[Moment] = []

    def decisions() -> Iterator[list[Frame]]:
        for seed in range(arguments.seed, arguments.seed + (arguments.episodes or 1)):
            episode = episode_of(environment, policy, seed, deterministic=_is_deterministic(arguments, recipe))
            for pictures, moment in episode:
                yield pictures
                outcomes.extend([moment] if moment.stop_reason is not None else [])

    played = decisions()
    start, first = next(played), next(played)
    rate = decisions_per_second(environment) * max(1, len(first)) * arguments.speed
    path.parent.mkdir(parents=True, exist_ok=True)
    write_mp4(path, chain(start, first, chain.from_iterable(played)), rate, hold=HOLD)
    print(f"{summary(outcomes)}\nfilm     {path}")
    return 0


def _drawing(recipe: Recipe[Any], mode: str) -> gymnasium.Env[Any, Any]:
    """Return an environment that draws; raises RenderingUnavailable if there is none of the recipe's."""
    name = recipe.environment.name
    try:
        found = judged_environment_of(recipe, render_mode=mode)
    except (TypeError, UnknownName, InvalidSetting) as error:
        raise _no_pictures(name, error) from error
    if type(found.unwrapped).render is gymnasium.Env.render:
        raise _no_pictures(name, "no render()")
    return found


def _no_pictures(name: str, why: object) -> RenderingUnavailable:
    return RenderingUnavailable(
        f"{name} draws no pictures.",
        got=why,
        allowed='an environment that takes render_mode="rgb_array" and returns pictures from render()',
        fix="robo-rl evaluate shows its numbers",
    )


def _player(arguments: Play, recipe: Recipe[Any], environment: gymnasium.Env[Any, Any], policy: Policy) -> Player:
    """Return a player of a policy; raises SpecMismatch if the policy was made for another environment."""
    spec = specification(environment)
    policy.environment_spec.require_interface(spec, what=f"The policy was made for another environment than this {spec.name}")
    return Player(environment, policy, deterministic=_is_deterministic(arguments, recipe), speed=arguments.speed)
