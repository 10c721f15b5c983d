"""The operator of a robot: a desk, the page before it, and what a training needs of the person who sits there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gymnasium

from robo_real.console.asked import HOLDS, JUDGING, READY, AskedFor, Judged
from robo_real.console.desk import Desk
from robo_real.console.episodes import Tally
from robo_real.console.human import Still
from robo_real.console.pictures import Pictures
from robo_real.console.session import Console, console_server
from robo_real.environment import RobotEnv
from robo_real.family import FAMILY
from robo_real.link import Link
from robo_real.remote import RemoteRobot
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.spec.environment import ActionSpec, specification
from robo_rl.system.pages.server import ADDRESS

OWNER = "console"
LOOK = 0.1
"""[s] between two looks whether an episode may begin"""


def operator_at(environment: str, *, address: str, port: int) -> Operator:
    """Returns the operator of the robot of an environment's name; raises RobotUnavailable, InvalidSetting."""
    found = FAMILY.at(environment.partition(":")[2])
    bare = found.unwrapped
    assert isinstance(bare, RobotEnv)
    assert isinstance(bare.robot, RemoteRobot)
    return Operator(bare.robot, specification(found).action, address=address, port=port)


class Operator:
    """Operator at the page of one robot. The page is served until `close`."""

    def __init__(self, robot: RemoteRobot, action: ActionSpec, *, address: str = ADDRESS, port: int = 0) -> None:
        """action: what the hands command. Raises RobotUnavailable if nothing answers, InvalidSetting for a port in use."""
        self._robot = robot
        self.desk, self.still, self.tally = Desk(), Still(action), Tally()
        self.links: dict[str, str] = {}
        self._leaves = threading.Event()
        self._pictures = Pictures(robot.link.url)
        console = Console(self.desk, self._pictures, self.tally, action, self.still, robot.stop, self._rearm, self.links)
        try:
            self.server = console_server(console, address=address, port=port)
        except BaseException:
            self._pictures.close()
            raise

    def training(self, environment: gymnasium.Env[Any, Any], *, doing: str = "training") -> tuple[AskedFor, PersonInTheLoop]:
        """Returns the environment with episodes that the operator begins and labels, and who corrects the policy there.

        doing: what the page says that the episodes are for.
        """
        asked = AskedFor(environment, self, doing)
        return asked, PersonInTheLoop(asked.human, specification(environment).action.control_period)

    def judging(self, environment: gymnasium.Env[Any, Any]) -> Judged:
        """Returns an environment for evaluations, in which the operator judges and does not help."""
        return Judged(environment, self, JUDGING)

    def wait_for_start(self, may_begin: Callable[[], bool]) -> None:
        """Returns when the operator wants an episode to begin; raises KeyboardInterrupt after `leave`.

        may_begin: asked again and again. What is pressed before it says so begins nothing, now or later.
        """
        self.desk.end()
        while not self._leaves.is_set():
            if not may_begin():
                self.tally.message = HOLDS
                self._leaves.wait(LOOK)
                self.desk.end()
                continue
            if self.tally.message == HOLDS:
                self.tally.message = READY
            if self.desk.wait_for_start(LOOK):
                return
        raise KeyboardInterrupt

    @property
    def is_left(self) -> bool:
        """True once nobody waits for the operator any more."""
        return self._leaves.is_set()

    def leave(self) -> None:
        """Stop waiting for the operator."""
        self._leaves.set()

    def close(self) -> None:
        """Ends the page."""
        self.server.close()
        self._pictures.close()

    def _rearm(self, stops: int | None = None) -> None:
        """stops: of the robot, as the page showed them; the present ones by default."""
        link = Link(self._robot.link.url)
        try:
            seen = link.json("/robo/health", method="GET")["stops"] if stops is None else stops
            link.json("/robo/rearm", {"by": OWNER, "stops": seen})
        finally:
            link.close()
