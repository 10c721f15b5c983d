"""Console of a served robot: environment, operator, episodes and page in one object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from robo_real.console.episodes import Store
from robo_real.console.human import HoldPolicy, PersonCommands
from robo_real.console.operator import Operator
from robo_real.console.operator_env import SHADOWING
from robo_real.environment import RobotEnv
from robo_real.remote_robot import RemoteRobot
from robo_rl.environments.wrapping import wrapped
from robo_rl.errors import RobotError
from robo_rl.protocols.components import Policy
from robo_rl.rollout.episode import Rollout
from robo_rl.spec.environment import specification
from robo_rl.system.pages.server import ADDRESS
from robo_rl.types import Episode


class RobotConsole:
    """Console of one robot without a training: `run` plays the episodes that the operator starts on the page."""

    def __init__(
        self,
        url: str,
        *,
        policy_for: Callable[[gymnasium.Env[Any, Any]], Policy] | None = None,
        settings: Mapping[str, Any] | None = None,
        address: str = ADDRESS,
        port: int = 0,
        shadow: bool = False,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Connect to the robot's server and serve the page; `run` plays episodes.

        Args:
            url: Address of the robot's server.
            policy_for: Builds, for the environment, the policy that acts while the operator does not; None to hold the arm.
            settings: Name -> value of the environment's settings.
            address: Address of the page.
            port: Port of the page; 0 chooses a free one.
            shadow: True for a shadow run: the guard judges the actions of the policy, which are never sent. The arm holds
                while the operator does not act.
            notify: Shows a message about a device.

        Raises:
            RobotUnavailable: No server answers at `url`.
            InvalidSetting: The port is in use, or a setting is impossible.
        """
        robot, settings = RemoteRobot(url), settings or {}
        own = {key: value for key, value in settings.items() if key != "wrappers"}
        bare = RobotEnv(robot, robot, **own)
        self.environment = wrapped(bare, settings.get("wrappers", ()))
        spec = specification(self.environment)
        policy = policy_for(self.environment) if policy_for else None
        self._operator = operator = Operator(robot, spec.action, address=address, port=port, notify=notify)
        self.drive_with = operator.drive_with
        self.server, self.operator_state, self.tally = operator.server, operator.operator_state, operator.tally
        self._policy = policy or HoldPolicy(spec, operator.hold_action)
        if policy is None:
            self.tally.alone = "Nobody acts: the arm holds still"
        elif shadow:
            self.tally.alone = "Nobody acts: the policy is asked, and the arm holds still"
        self.tally.has_policy = policy is not None and not shadow
        self._operator_env, takeover = operator.training_env(self.environment, doing=SHADOWING if shadow else "")
        self._takeover = None if shadow else takeover
        if shadow:
            bare.commands = PersonCommands(self._operator_env.human, operator.hold_action)
        self.on_episode: Callable[[Episode], None] | None = None
        """called with each episode that was not discarded; None for no call"""
        self._store: Store | None = None

    def keep(self, store: Store, links: Mapping[str, str]) -> None:
        """Store the episodes, from the next one on.

        Args:
            store: Store of the episodes.
            links: Title -> address of related pages, shown on the page.
        """
        self._store = store
        self._operator_env.is_stored_after = True
        self._operator.links.update(links)

    def run(self, seed: int = 0) -> None:
        """Play episodes until the console is closed or interrupted, then hold the arm.

        seed: seed of the first episode; each later one has the next number.
        """
        try:
            while True:
                self._play(seed)
                seed += 1
        except KeyboardInterrupt:  # a cancelled wait for the operator raises it, too
            if not self._operator.is_cancelled:
                raise
        finally:
            self._operator_env.close()

    def _play(self, seed: int) -> None:
        """Wait until the operator starts an episode, and play it."""
        rollout = Rollout(self._operator_env, self._policy, seed=seed, supervisor=self._takeover, deterministic=True)
        if (store := self._store) is not None:
            store.begin(rollout)
        try:
            while not rollout.done and not self._operator.is_cancelled:
                transition = rollout.step()
                if store is not None:
                    store.step(transition)
        except RobotError as error:
            self.tally.message = " ".join(str(error).split())
            return
        if not rollout.done:
            rollout.cut("operator")
        is_kept = len(rollout) and not self._operator_env.is_discarded
        if self.on_episode is not None and is_kept:
            self.on_episode(rollout.episode())
        if store is not None:
            store.end(rollout if is_kept else None)
            self._operator_env.show_end()

    def start(self, seed: int = 0) -> threading.Thread:
        """Call `run` in a new thread, and return the thread."""
        thread = threading.Thread(target=self.run, args=(seed,), name="episodes", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Close the page and end `run`."""
        self._operator.cancel()
        self._operator.close()
