"""Operator of a robot: state, page, and the environments of a training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gymnasium

from robo_real.console.episodes import Tally
from robo_real.console.human import HoldAction
from robo_real.console.monitor import RobotMonitor
from robo_real.console.operator_env import HOLDS, JUDGING, READY, OperatorEnv, OperatorEvaluationEnv
from robo_real.console.operator_state import OperatorState
from robo_real.console.session import Console, console_server
from robo_real.environment import RobotEnv
from robo_real.family import FAMILY
from robo_real.http_client import RobotClient
from robo_real.remote_robot import RemoteRobot
from robo_real.teleoperation.session import TeleoperatorSession
from robo_real.teleoperation.teleoperator import Teleoperator
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.spec.environment import ActionSpec, specification
from robo_rl.system.pages.server import ADDRESS

OWNER = "console"
POLL = 0.1
"""[s] period of the check for a start request"""


def operator_at(environment: str, *, address: str, port: int, notify: Callable[[str], None] = lambda _: None) -> Operator:
    """Return the operator of the robot in an environment name; raises RobotUnavailable, InvalidSetting."""
    found = FAMILY.at(environment.partition(":")[2])
    bare = found.unwrapped
    assert isinstance(bare, RobotEnv)
    assert isinstance(bare.robot, RemoteRobot)
    return Operator(bare.robot, specification(found).action, address=address, port=port, notify=notify)


class Operator:
    """Operator at the page of one robot. The page is served until `close`."""

    def __init__(
        self,
        robot: RemoteRobot,
        action: ActionSpec,
        *,
        address: str = ADDRESS,
        port: int = 0,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """action: spec of the operator's commands. notify: shows a message about a device.

        Raises RobotUnavailable, or InvalidSetting for a port in use.
        """
        self._robot, self._notify = robot, notify
        self.operator_state, self.hold_action, self.tally = OperatorState(), HoldAction(action), Tally()
        self.links: dict[str, str] = {}
        self._action = action
        self._devices: list[TeleoperatorSession] = []
        self._cancelled = threading.Event()
        self._monitor = RobotMonitor(robot.client.url)
        console = Console(
            self.operator_state, self._monitor, self.tally, action, self.hold_action, robot.stop, self._rearm, self.links
        )
        try:
            self.server = console_server(console, address=address, port=port)
        except BaseException:
            self._monitor.close()
            raise

    def drive_with(self, device: Teleoperator, *, is_operator: bool = False) -> None:
        """Open a device and let it command beside the page, or as the operator; its messages are shown on the page, too.

        Raises TeleoperatorUnavailable, InvalidSetting.
        """
        session = TeleoperatorSession(
            device,
            self.operator_state,
            self.hold_action,
            self._action,
            stop=self._robot.stop,
            rearm=self._rearm,
            notify=self._show_device,
            is_operator=is_operator,
        )
        self._devices.append(session)

    def training_env(
        self, environment: gymnasium.Env[Any, Any], *, doing: str = "training"
    ) -> tuple[OperatorEnv, PersonInTheLoop]:
        """Return the environment under the operator's control, and the supervisor that corrects the policy in it.

        doing: purpose of the episodes, shown on the page.
        """
        operator_env = OperatorEnv(environment, self, doing)
        return operator_env, PersonInTheLoop(operator_env.human, specification(environment).action.control_period)

    def evaluation_env(self, environment: gymnasium.Env[Any, Any]) -> OperatorEvaluationEnv:
        """Return the environment for evaluations, in which the operator labels and does not help."""
        return OperatorEvaluationEnv(environment, self, JUDGING)

    def wait_for_start(self, may_begin: Callable[[], bool]) -> None:
        """Block until the operator starts an episode; raises KeyboardInterrupt after `cancel`.

        may_begin: polled. Start requests before it returns True are dropped.
        """
        self.operator_state.end()
        while not self._cancelled.is_set():
            if not may_begin():
                self.tally.message = HOLDS
                self._cancelled.wait(POLL)
                self.operator_state.end()
                continue
            if self.tally.message == HOLDS:
                self.tally.message = READY
            if self.operator_state.wait_for_start(POLL):
                return
        raise KeyboardInterrupt

    @property
    def is_cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Cancel the wait for the operator."""
        self._cancelled.set()

    def close(self) -> None:
        """Close the page and the devices."""
        for device in self._devices:
            device.close()
        self.server.close()
        self._monitor.close()

    def _show_device(self, message: str) -> None:
        self.tally.device = message
        self._notify(message)

    def _rearm(self, stops: int | None = None) -> None:
        """stops: number of stops of the robot that the page showed; the present number by default."""
        client = RobotClient(self._robot.client.url)
        try:
            seen = client.json("/robo/health", method="GET")["stops"] if stops is None else stops
            client.json("/robo/rearm", {"by": OWNER, "stops": seen})
        finally:
            client.close()
