"""A console over a robot that is served: environment, person, episodes and page put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from robo_real.console.episodes import Store
from robo_real.console.human import HoldStill
from robo_real.console.operator import Operator
from robo_real.environment import RobotEnv
from robo_real.remote import RemoteRobot
from robo_rl.errors import RobotError
from robo_rl.protocols.components import Policy
from robo_rl.rollout.episode import Rollout
from robo_rl.system.pages.server import ADDRESS


class RobotConsole:
    """Console of one robot; `run` plays episodes as the operator asks for them."""

    def __init__(
        self,
        url: str,
        *,
        policy_for: Callable[[RobotEnv], Policy] | None = None,
        settings: Mapping[str, Any] | None = None,
        address: str = ADDRESS,
        port: int = 0,
    ) -> None:
        """policy_for: who acts while the person does not; nobody by default. settings: of the environment.

        Raises RobotUnavailable if nothing answers at the address.
        """
        robot = RemoteRobot(url)
        self.environment = RobotEnv(robot, robot, **(settings or {}))
        spec = self.environment.environment_spec
        policy = policy_for(self.environment) if policy_for else None
        self._operator = operator = Operator(robot, spec.action, address=address, port=port)
        self.server, self.desk, self.tally = operator.server, operator.desk, operator.tally
        self._policy = policy or HoldStill(spec, operator.still)
        self._asked, self._takeover = operator.training(self.environment, doing="")
        self._store: Store | None = None

    def keep(self, store: Store, links: Mapping[str, str]) -> None:
        """Keeps the episodes from the next one on; links: pages beside this one, what they show -> address."""
        self._store = store
        self._operator.links.update(links)

    def run(self, seed: int = 0) -> None:
        """Play until it is closed or interrupted, then leave the arm still; seed: of the first episode, the others follow."""
        try:
            while True:
                self._play(seed)
                seed += 1
        except KeyboardInterrupt:  # also what ends the wait for an operator who is left
            if not self._operator.is_left:
                raise
        finally:
            self._asked.close()

    def _play(self, seed: int) -> None:
        """Play an episode once the operator asks for it."""
        rollout = Rollout(self._asked, self._policy, seed=seed, supervisor=self._takeover, deterministic=True)
        if (store := self._store) is not None:
            store.begin(rollout)
        try:
            while not rollout.done and not self._operator.is_left:
                transition = rollout.step()
                if store is not None:
                    store.step(transition)
        except RobotError as error:
            self.tally.message = " ".join(str(error).split())
            return
        if not rollout.done:
            rollout.cut("operator")
        if store is not None:
            store.end(None if self._asked.is_discarded or not len(rollout) else rollout)

    def start(self, seed: int = 0) -> threading.Thread:
        """Returns a thread that runs it."""
        thread = threading.Thread(target=self.run, args=(seed,), name="episodes", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Ends everything; `run` returns."""
        self._operator.leave()
        self._operator.close()
