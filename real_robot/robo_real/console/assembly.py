"""A console over a robot that is served: environment, person, episodes and page put together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from robo_real.console.desk import Desk
from robo_real.console.episodes import Episodes, Store
from robo_real.console.human import ConsoleHuman, HoldStill, Still
from robo_real.console.labels import LabelledByPerson
from robo_real.console.pictures import Pictures
from robo_real.console.server import ADDRESS, ConsoleServer
from robo_real.console.session import Console
from robo_real.environment import RobotEnv
from robo_real.link import Link
from robo_real.remote import RemoteRobot
from robo_rl.human import PersonInTheLoop
from robo_rl.protocols import Policy

OWNER = "console"


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
        self._robot = RemoteRobot(url)
        self.environment = RobotEnv(self._robot, self._robot, **(settings or {}))
        self._links: dict[str, str] = {}
        spec = self.environment.environment_spec
        self.desk, still = Desk(), Still(spec.action)
        self.human = ConsoleHuman(self.desk, self._robot, still)
        policy: Policy = policy_for(self.environment) if policy_for else HoldStill(spec, still)
        labelled = LabelledByPerson(self.environment, self.desk, still)
        self.episodes = Episodes(labelled, policy, PersonInTheLoop(self.human, spec.action.control_period), self.desk)
        self._pictures = Pictures(self._robot.link.url)
        tally, stop = self.episodes.tally, self._robot.stop
        console = Console(self.desk, self._pictures, tally, spec.action, still, stop, self._rearm, self._links)
        try:
            self.server = ConsoleServer(console, address=address, port=port)
        except BaseException:
            self._pictures.close()
            raise

    def keep(self, store: Store, links: Mapping[str, str]) -> None:
        """Keeps the episodes from the next one on; links: pages beside this one, what they show -> address."""
        self.episodes.store = store
        self._links.update(links)

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
        self.server.close()
        self._pictures.close()

    def _rearm(self) -> None:
        link = Link(self._robot.link.url)
        try:
            link.json("/robo/rearm", {"by": OWNER})
        finally:
            link.close()
