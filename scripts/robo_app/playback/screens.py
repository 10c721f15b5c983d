"""Options of `robo-rl play`, and playing in a window or on a page."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import tyro

from robo_app.arguments.free_settings import EnvironmentArguments
from robo_app.display.browser import open_page
from robo_app.playback.playback import Player, Screen, summary
from robo_app.playback.window import Window
from robo_app.recipes.recipe import Recipe, require_at_least
from robo_app.training.run_evaluation import elsewhere
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.evaluation.evaluation import FIRST_SEED
from robo_rl.protocols.components import Policy
from robo_rl.runs.run import Run
from robo_rl.spec.environment import specification


@dataclass(frozen=True)
class Play:
    """Show the policy of a run at the environment's own rate: in MuJoCo's window if there is a display, else in the browser."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Path or name of a run folder, or "latest"."""
    step: Annotated[int | Literal["best"] | None, tyro.conf.arg(metavar="{INT,best}")] = None
    """Step of the policy; by default that of the newest checkpoint."""
    seed: int = FIRST_SEED
    """Reset seed of the first episode; the others follow."""
    episodes: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Number of episodes; by default until Ctrl-C, and one for a film."""
    environment: str = ""
    """Another environment than the one trained on; one of the same family is made with the same arguments."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Setting of the environment that differs from the training's, such as --environment.arguments.cameras [front]"""
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


def stage_of(recipe: Recipe[Any], arguments: Play) -> Recipe[Any]:
    """Return the recipe with the environment that the command's options ask for; an unchanged recipe if they ask for none.

    A changed recipe loses the environment arguments that are only for evaluations.
    """
    if not (arguments.environment or arguments.arguments):
        return recipe
    there = elsewhere(recipe.environment, arguments.environment, "", arguments.arguments)
    return replace(recipe, environment=there, evaluation=replace(recipe.evaluation, arguments={}))


def is_deterministic(arguments: Play, recipe: Recipe[Any]) -> bool:
    """Return True if the policy takes its most likely actions, False if it samples."""
    return not (arguments.stochastic or recipe.evaluation.stochastic)


def play_in_window(arguments: Play, player: Player, environment: gymnasium.Env[Any, Any]) -> int:
    """Play in the window of MuJoCo until it is closed; returns the exit status."""
    with closing(Window(environment, player)) as window:
        print(
            "space pauses, R plays the same seed again, N the next one, Tab shows MuJoCo's panel   (Ctrl-C ends it)",
            flush=True,
        )
        return _played(arguments, player, window)


def play_in_browser(arguments: Play, player: Player, environment: gymnasium.Env[Any, Any], trained: Run) -> int:
    """Play on a page of this machine until Ctrl-C; returns the exit status."""
    from robo_app.playback.page.server import PlayServer

    with closing(PlayServer(f"{trained.path.name} in {specification(environment).name}", player, arguments.port)) as page:
        print(f"{trained.path} plays at {page.server.url}   (Ctrl-C ends it)", flush=True)
        open_page(page.server.url, is_wanted=arguments.browser)
        return _played(arguments, player, page)


def _played(arguments: Play, player: Player, screen: Screen) -> int:
    with suppress(KeyboardInterrupt):
        player.run(screen, arguments.seed, arguments.episodes)
    print(summary(player.outcomes))
    return 0


def player_of(arguments: Play, recipe: Recipe[Any], environment: gymnasium.Env[Any, Any], policy: Policy) -> Player:
    """Return a player of a policy; raises SpecMismatch if the policy was made for another environment."""
    spec = specification(environment)
    policy.environment_spec.require_interface(spec, what=f"The policy was made for another environment than this {spec.name}")
    return Player(environment, policy, deterministic=is_deterministic(arguments, recipe), speed=arguments.speed)
