"""A console over a robot that is served: environment, person, episodes and page put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from robo_real.console.episodes import Episodes, Store
from robo_real.console.human import ConsoleHuman, HoldStill
from robo_real.console.labels import LabelledByPerson
from robo_real.console.operator import Operator
from robo_real.environment import RobotEnv
from robo_real.remote import RemoteRobot
from robo_rl.human import PersonInTheLoop
from robo_rl.pages.server import ADDRESS
from robo_rl.protocols import Policy


class RobotConsole:
    """Everything of one console; `run` plays episodes as the operator asks for them."""

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

        Raises RobotUnavailable where nothing answers at the address.
        """
        robot = RemoteRobot(url)
        self.environment = RobotEnv(robot, robot, **(settings or {}))
        spec = self.environment.environment_spec
        policy = policy_for(self.environment) if policy_for else None
        self._operator = operator = Operator(robot, spec.action, address=address, port=port)
        self.server, self.desk = operator.server, operator.desk
        self.human = ConsoleHuman(self.desk, robot, operator.still)
        policy = policy or HoldStill(spec, operator.still)
        labelled = LabelledByPerson(self.environment, self.desk, operator.still)
        takeover = PersonInTheLoop(self.human, spec.action.control_period)
        self.episodes = Episodes(labelled, policy, takeover, self.desk, operator.tally)

    def keep(self, store: Store, links: Mapping[str, str]) -> None:
        """Keeps the episodes from the next one on; links: pages beside this one, what they show -> address."""
        self.episodes.store = store
        self._operator.links.update(links)

    def run(self, seed: int = 0) -> None:
        """Plays until it is closed or interrupted, then leaves the arm still."""
        try:
            self.episodes.run(seed)
        finally:
            self.environment.close()

    def start(self, seed: int = 0) -> threading.Thread:
        """Returns a thread that runs it."""
        thread = threading.Thread(target=self.run, args=(seed,), name="episodes", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Ends everything; `run` returns."""
        self.episodes.close()
        self._operator.close()
