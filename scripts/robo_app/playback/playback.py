"""Play episodes of a policy at the environment's own rate, with pause, restart and next."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium

from robo_rl.evaluation.video import HOLD, Frame, decisions_per_second, rendered
from robo_rl.protocols.components import Policy
from robo_rl.rollout.episode import Rollout

Command = Literal["pause", "go", "restart", "next"]
"""Command to a player: "restart" plays the same seed again, "next" the next seed."""
IDLE = 0.05
"""Time between two checks whether a paused player goes on [s]."""


@dataclass(frozen=True)
class Moment:
    """Numbers of an episode after a decision of the policy."""

    seed: int
    step: int = 0
    reward: float = 0.0
    """Reward of the newest step."""
    episode_return: float = 0.0
    """Undiscounted return so far."""
    success: bool | None = None
    """True once the episode was a success; None if the environment has no success criterion."""
    stop_reason: str | None = None
    """Stop reason of the episode; None while it runs."""


class Screen(Protocol):
    """A screen that shows an episode: a window or a page."""

    @property
    def is_open(self) -> bool:
        """False once the page or window is closed."""

    def show(self, picture: Frame | None, moment: Moment) -> None:
        """Show a picture (H, W, 3), or None if the environment has none, and the numbers of the moment."""


def episode_of(
    environment: gymnasium.Env[Any, Any], policy: Policy, seed: int, *, deterministic: bool
) -> Iterator[tuple[list[Frame], Moment]]:
    """Play an episode, and yield after the reset and after each decision (new pictures, numbers).

    The list of pictures is empty if the environment has no render mode.
    """
    rollout = Rollout(environment, policy, seed=seed, deterministic=deterministic)
    moment = Moment(seed)
    yield _pictures(environment), moment
    while not rollout.done:
        reward = rollout.step().reward
        moment = Moment(
            seed,
            len(rollout),
            reward,
            moment.episode_return + reward,
            rollout.success,
            rollout.stop_reason if rollout.done else None,
        )
        yield _pictures(environment), moment


def _pictures(environment: gymnasium.Env[Any, Any]) -> list[Frame]:
    return [] if environment.render_mode is None else rendered(environment)


class Player:
    """Player of episodes on a screen, in the thread that calls `run`; other threads may send commands."""

    def __init__(
        self, environment: gymnasium.Env[Any, Any], policy: Policy, *, deterministic: bool = True, speed: float = 1.0
    ) -> None:
        """Make a player; `speed` is a multiple of the environment's own rate."""
        self.outcomes: list[Moment] = []
        """Last moment of each episode that was played to its end."""
        self.is_paused = False
        self._environment, self._policy, self._deterministic = environment, policy, deterministic
        self._period = 1.0 / (decisions_per_second(environment) * speed)
        self._changed = threading.Event()
        self._jump: Command | None = None

    def command(self, command: Command) -> None:
        """Execute a command: pause or resume the episode, or leave it. Any thread may call this."""
        if command in ("pause", "go"):
            self.is_paused = command == "pause"
        else:
            self._jump = command
        self._changed.set()

    def run(self, screen: Screen, first_seed: int, episodes: int | None = None) -> None:
        """Play episodes with seeds from `first_seed` on until `episodes` of them have ended or the screen is closed.

        screen: shows the episodes; a paused one keeps its newest picture. episodes: None for no limit.
        """
        seed = first_seed
        while screen.is_open and (episodes is None or len(self.outcomes) < episodes):
            moments = episode_of(self._environment, self._policy, seed, deterministic=self._deterministic)
            seed += 0 if self._play(screen, moments) == "restart" else 1

    def _play(self, screen: Screen, moments: Iterator[tuple[list[Frame], Moment]]) -> Command | None:
        """Play an episode; return the command that ended it, or None if it came to its own end."""
        due = time.monotonic()
        for pictures, moment in moments:
            frames: list[Frame | None] = [*pictures] or [None]
            for frame in frames:
                screen.show(frame, moment)
                due = max(due + self._period / len(frames), time.monotonic() - self._period)
                if not self._waited(screen, due):
                    return self._taken()
        self.outcomes.append(moment)
        self._waited(screen, due + HOLD)
        return self._taken()

    def _waited(self, screen: Screen, due: float) -> bool:
        """Wait until the time `due` [s], and while the player is paused; return False if the episode is to be left."""
        while self._jump is None and screen.is_open:
            left = due - time.monotonic()
            if left <= 0 and not self.is_paused:
                return True
            self._changed.wait(IDLE if self.is_paused else min(left, IDLE))
            self._changed.clear()
        return False

    def _taken(self) -> Command | None:
        jump, self._jump = self._jump, None
        return jump


def summary(outcomes: list[Moment]) -> str:
    """Return one line with number, successes and mean return of the episodes that were played to their end."""
    judged = [moment.success for moment in outcomes if moment.success is not None]
    rate = f", {sum(judged)} of {len(judged)} successes" if judged else ""
    mean = f", mean return {sum(moment.episode_return for moment in outcomes) / len(outcomes):.4g}" if outcomes else ""
    return f"{len(outcomes)} episode{'' if len(outcomes) == 1 else 's'} played{rate}{mean}"
