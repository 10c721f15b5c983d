"""robo-rl console: watch a robot in the browser, take over, stop it, label episodes and record them."""

from __future__ import annotations

from robo_app.robots.console import Console, serve_console

EXAMPLES = """robo-rl console --twin                                             (a simulated arm; only you act)
robo-rl console --twin --twin.settings.task robo/ArmPick-v0 --twin.settings.cameras [front,wrist] --policy scripted
robo-rl console --robot http://127.0.0.1:5000 --policy RUN --environment.arguments.action_repeat 3 --out data/corrections
robo-rl console --robot http://127.0.0.1:5000 --policy RUN --shadow     (you drive; the policy is asked, judged and compared)
robo-rl console --robot http://127.0.0.1:5000 --teleoperator spacemouse     (drive by it; start, label and stop on the page)"""


def run(arguments: Console) -> int:
    """Serve until Ctrl-C; the arm is left still."""
    return serve_console(arguments)
