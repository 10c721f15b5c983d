"""robo-rl data: look at recorded datasets, check them, mend them, and make new ones from them."""

from __future__ import annotations

from robo_cli.actions import Actions, run_action
from robo_cli.data.convert import EXAMPLES as CONVERSIONS
from robo_cli.data.convert import Convert, convert
from robo_cli.data.derive import Filter, Merge, Split, filter_, merge, split
from robo_cli.data.get import EXAMPLES as SETS
from robo_cli.data.get import Get, get
from robo_cli.data.info import Info, info
from robo_cli.data.stats import Stats, stats
from robo_cli.data.verify import Repair, Restore, Verify, repair, restore, verify
from robo_cli.data.view import View, view

EXAMPLES = """robo-rl data info data/pick
robo-rl data stats data/pick
robo-rl data verify data/pick
robo-rl data repair data/pick
robo-rl data restore data/pick
robo-rl data filter data/pick --out data/good --select.success True
robo-rl data split data/pick --into.train 0.9 --into.test 0.1
robo-rl data merge data/pick data/more --out data/all
robo-rl data view data/pick"""


def main(arguments: list[str]) -> int:
    """Run one of the actions and return its exit status."""
    return run_action("data", ACTIONS, f"{EXAMPLES}\n{SETS}\n{CONVERSIONS}", arguments)


ACTIONS: Actions = {
    "get": (Get, get),
    "info": (Info, info),
    "stats": (Stats, stats),
    "verify": (Verify, verify),
    "repair": (Repair, repair),
    "restore": (Restore, restore),
    "merge": (Merge, merge),
    "filter": (Filter, filter_),
    "split": (Split, split),
    "view": (View, view),
    "convert": (Convert, convert),
}
