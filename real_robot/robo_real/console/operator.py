"""Operator of a robot at the console: state, page, devices, and the environments of a training."""

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
    """Connect to the robot of an environment, serve its console, and return the operator.

    Args:
        environment: Name of the environment, robot:URL.
        address: Address of the page.
        port: Port of the page; 0 chooses a free one.
        notify: Shows a message about a device.

    Raises:
        RobotUnavailable: No robot's server answers there.
        InvalidSetting: The port is in use, or this is no address of a robot.
    """
    found = FAMILY.at(environment.partition(":")[2])
    bare = found.unwrapped
    assert isinstance(bare, RobotEnv)
    assert isinstance(bare.robot, RemoteRobot)
    return Operator(bare.robot, specification(found).action, address=address, port=port, notify=notify)


class Operator:
    """Operator of one robot: serves the page until `close`, and makes the environments whose episodes the operator starts."""

    def __init__(
        self,
        robot: RemoteRobot,
        action: ActionSpec,
        *,
        address: str = ADDRESS,
        port: int = 0,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Serve the page.

        Args:
            robot: Client of the robot.
            action: Spec of the operator's actions.
            address: Address of the page.
            port: Port of the page; 0 chooses a free one.
            notify: Shows a message about a device.

        Raises:
            RobotUnavailable: The robot's server does not answer.
            InvalidSetting: The port is in use.
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
        """Open a device with which a person drives the robot. Its messages are also shown on the page.

        Args:
            device: The device.
            is_operator: True to make the device the operator; False to let it command beside the operator's page.

        Raises:
            TeleoperatorUnavailable: The device cannot be opened.
            InvalidSetting: The device cannot command the robot's actions.
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
        """Wrap a robot's environment for a training with the operator.

        Args:
            environment: Environment of the robot.
            doing: Purpose of the episodes, shown on the page.

        Returns:
            The environment, whose episodes the operator starts, ends and labels; and the supervisor by which the operator
            takes over from the policy.
        """
        operator_env = OperatorEnv(environment, self, doing)
        return operator_env, PersonInTheLoop(operator_env.human, specification(environment).action.control_period)

    def evaluation_env(self, environment: gymnasium.Env[Any, Any]) -> OperatorEvaluationEnv:
        """Wrap a robot's environment for evaluations: the operator labels episodes, and an intervention ends them as failed."""
        return OperatorEvaluationEnv(environment, self, JUDGING)

    def wait_for_start(self, may_begin: Callable[[], bool]) -> None:
        """Block until the operator starts an episode.

        Args:
            may_begin: Polled; start requests are dropped until it returns True.

        Raises:
            KeyboardInterrupt: `cancel` was called.
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
        """True once `cancel` was called."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """End the wait for the operator, now and from now on: `wait_for_start` raises KeyboardInterrupt."""
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
        """Re-arm the robot; stops: number of its stops that the page showed, None for the present number."""
        client = RobotClient(self._robot.client.url)
        try:
            seen = client.json("/robo/health", method="GET")["stops"] if stops is None else stops
            client.json("/robo/rearm", {"by": OWNER, "stops": seen})
        finally:
            client.close()
