"""Console of a robot (`robo-rl robot console`): options, the twin that it may serve, the dataset that it records."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robo_app.arguments.free_settings import EnvironmentArguments, TeleoperatorSettings, TwinSettings
from robo_app.display.browser import open_page
from robo_app.jobs.interruption import insistent_interruption
from robo_app.recording.actors import actor
from robo_datasets.dataset import Dataset
from robo_datasets.recorder import EpisodeRecorder
from robo_datasets.repair import repair
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import Episode

if TYPE_CHECKING:
    from robo_real.console.robot_console import RobotConsole
    from robo_real.server.application import RobotServer

ADDRESS = "127.0.0.1"
NO_POLICY = "nobody"
TWIN_EPISODE = 30.0
"""Time limit of an episode on the twin for a person [s]; a policy's is shorter."""
PICTURE = 240
"""Height and width of the twin's pictures [pixel], large enough for a person."""


@dataclass(frozen=True)
class Console:
    """Open a page for the operator of a robot: cameras, stop, takeover by keyboard, gamepad and touch, labels."""

    robot: str = ""
    """Address of `robo-rl robot serve`."""
    twin: bool = False
    """Serve a twin here instead."""
    options: TwinSettings = field(default_factory=dict)
    """Setting of the twin: task, speed, cameras, image_size."""
    policy: str = ""
    """Policy that acts while you do not: "scripted", RUN or RUN@STEP; by default none."""
    shadow: bool = False
    """Send nothing of the policy: the guard judges it while you drive, and the difference is reported at the end."""
    teleoperator: str = ""
    """Device that you drive with beside the page: spacemouse, gamepad, ... or one of your own (entry points
    robo_rl.teleoperators)."""
    teleoperator_settings: TeleoperatorSettings = field(default_factory=dict)
    """Setting of the device: axes, linear_speed, angular_speed, dead_band, release."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Dataset that the episodes are added to; it is made if there is none."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Setting of the environment, such as --environment.arguments.action_repeat 3"""
    seed: int = 0
    """Reset seed of the first episode; the others follow."""
    address: str = ADDRESS
    """Address of the page; an address other than 127.0.0.1 admits other devices, such as a tablet, without encryption."""
    port: int = 8644
    """Port of the page; 0 for any free one."""
    browser: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Leave the browser alone; without this the page opens in it if there is a display."""
    runs: Path = Path("runs")
    """Folder that holds the runs."""
    noise: float = 0.0
    """Standard deviation of the noise on the scripted expert's action, in [-1, 1] units."""
    stochastic: bool = False
    """Sample a run's actions instead of taking the most likely one."""

    def __post_init__(self) -> None:
        if bool(self.robot) == self.twin:
            raise InvalidSetting("Which robot?", got=f"robot {self.robot!r}, twin {self.twin}", allowed="--robot URL or --twin")
        if self.shadow and not self.policy:
            raise InvalidSetting("A shadow run needs a policy.", got="--shadow alone", fix="--policy RUN, or --policy scripted")


def print_shadow(console: RobotConsole) -> Callable[[], None]:
    """Collect the console's episodes from now on; return a function that prints the report of the shadow run."""
    from robo_real.shadow_report import shadow_report

    played: list[Episode] = []
    console.on_episode = lambda episode: played.append(replace(episode, observations={}))
    action = specification(console.environment).action
    return lambda: print(shadow_report(played, action) if played else "shadow   no episode was kept")


def serve_console(
    arguments: Console, operator: Callable[[RobotConsole], AbstractContextManager[None]] = lambda _: nullcontext()
) -> int:
    """Serve a console until Ctrl-C; the arm then holds still.

    operator: context manager that operates the console while it is open, in place of a person at the page. Returns exit status
    0.
    """
    from robo_real.console.robot_console import RobotConsole
    from robo_real.teleoperation.teleoperator import make_teleoperator

    device = make_teleoperator(arguments.teleoperator, arguments.teleoperator_settings) if arguments.teleoperator else None
    with ExitStack() as stack:
        url, settings = arguments.robot, arguments.arguments
        if arguments.twin:
            twin = stack.enter_context(twin_server(arguments))
            url, settings = twin.url, for_a_person(twin.application.robot.spec, settings)
        console = RobotConsole(
            url,
            policy_for=policy_for(arguments),
            settings=settings,
            address=arguments.address,
            port=arguments.port,
            shadow=arguments.shadow,
            notify=partial(print, flush=True),
        )
        stack.callback(console.close)
        if arguments.shadow:
            stack.callback(print_shadow(console))
        if arguments.out is not None:
            record_to_dataset(arguments, console, stack, {"environment": f"robot:{url}", "arguments": settings})
        if device is not None:
            console.drive_with(device)
        print_address(arguments, console.server.url)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves the arm still, as Ctrl-C does
        try:
            with insistent_interruption():
                stack.enter_context(operator(console))
                console.run(arguments.seed)
        except KeyboardInterrupt:
            print("\nended; the arm holds still", flush=True)
    return 0


def record_to_dataset(arguments: Console, console: RobotConsole, stack: ExitStack, card: dict[str, Any]) -> None:
    """Let the console record its episodes to the dataset in the options, and link to a viewer of it.

    stack: closes dataset and viewer at the end. card: facts stored in a new dataset.
    """
    from robo_datasets.viewer.server import viewer_server

    assert arguments.out is not None
    policy = arguments.policy or NO_POLICY
    dataset = _dataset_of(arguments.out, specification(console.environment), card | {"policy": policy})
    writer = stack.enter_context(dataset.writer())
    repair(writer, thorough=False)
    recorder = stack.enter_context(closing(EpisodeRecorder(writer, policy)))
    console.keep(recorder, {"Recorded episodes": stack.enter_context(viewer_server(dataset, 0)).url})


def _dataset_of(path: Path, spec: EnvironmentSpec, card: dict[str, Any]) -> Dataset:
    """Return the dataset in a folder, which is made if it does not exist; raises SpecMismatch for one of another robot."""
    if not path.exists():
        return Dataset.create(path, spec, card)
    dataset = Dataset(path)
    dataset.spec.require(spec.single, what="The dataset was recorded on another robot")
    return dataset


def policy_for(arguments: Console) -> Callable[[Any], Policy] | None:
    """Return a function from an environment to the policy in the options; None if there is no policy."""
    if not arguments.policy:
        return None
    return lambda environment: actor(arguments.policy, environment, arguments)(arguments.seed).policy


@contextmanager
def twin_server(arguments: Console) -> Iterator[RobotServer]:
    """Serve a twin inside the block."""
    from robo_real.serving import ServerSettings, build_server

    options = {"cameras": ("front",), "image_size": PICTURE} | arguments.options
    server = build_server(ServerSettings(options=options, port=0))
    server.start()
    try:
        yield server
    finally:
        server.close()


def for_a_person(spec: EnvironmentSpec, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a robot environment's settings, with a time limit of `TWIN_EPISODE` unless they set a limit of their own.

    spec: spec of the environment, whose control period converts seconds to steps.
    """
    period = (spec.action.control_period or 1.0) * settings.get("action_repeat", 1)
    return {"max_steps": math.ceil(TWIN_EPISODE / period), **settings}


def print_address(arguments: Console, url: str) -> None:
    """Print the address of the page, and open it in the browser if there is a display."""
    print(f"the console is at {url}   (Ctrl-C ends it)", flush=True)
    if arguments.address != ADDRESS:
        print("other machines reach it, unencrypted: who sees this address with its token can move the robot", flush=True)
    open_page(url, is_wanted=arguments.browser)
