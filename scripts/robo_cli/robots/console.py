"""robo-rl console: watch a robot in the browser, take over, stop it, label episodes and record them."""

from __future__ import annotations

import signal
from contextlib import ExitStack

from robo_app.robots.console import Console, policy_for, print_address, print_shadow, record_to_dataset, twin_server

EXAMPLES = """robo-rl console --twin                                             (a simulated arm; only you act)
robo-rl console --twin --twin.settings.task robo/ArmPick-v0 --twin.settings.cameras [front,wrist] --policy scripted
robo-rl console --robot http://127.0.0.1:5000 --policy RUN --shadow     (you drive; the policy is asked, judged and compared)
robo-rl console --robot http://127.0.0.1:5000 --policy RUN --environment.arguments.action_repeat 3 --out data/corrections"""


def run(arguments: Console) -> int:
    """Serves until Ctrl-C; the arm is left still."""
    from robo_real.console.robot_console import RobotConsole

    with ExitStack() as stack:
        url = stack.enter_context(twin_server(arguments)) if arguments.twin else arguments.robot
        settings = arguments.arguments
        console = RobotConsole(
            url,
            policy_for=policy_for(arguments),
            settings=settings,
            address=arguments.address,
            port=arguments.port,
            shadow=arguments.shadow,
        )
        stack.callback(console.close)
        if arguments.shadow:
            stack.callback(print_shadow(console))
        if arguments.out is not None:
            record_to_dataset(arguments, console, stack, {"environment": f"robot:{url}", "arguments": settings})
        print_address(arguments, console.server.url)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves the arm still, as Ctrl-C does
        try:
            console.run(arguments.seed)
        except KeyboardInterrupt:
            print("\nended; the arm holds still")
    return 0
