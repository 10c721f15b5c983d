"""Every command of the first hour, in order, from an empty folder, with settings so small that it takes seconds.

SMALL has a row for each command, word for word; a command of the page without a row fails, and so does a row without one.
The README shows some of them, in the same order.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from robo_cli.main import dispatch
from robo_cli.twin_process import twin_process
from robo_rl.runs.run import find_run

ROOT = Path(__file__).parents[2]
README, FIRST_HOUR = ROOT / "README.md", ROOT / "docs" / "first-hour.md"
JUDGED = "--evaluation.episodes 1 --evaluation.every 0 --evaluation.videos 0 --log-every 0 --checkpoint-every 0"
ARM = f"--steps 40 --learner.learning-starts 20 --learner.hidden 8 --learner.batch-size 8 {JUDGED}"
PICK = f"{ARM} --demonstrations.episodes 1"
PPO = f"--learner.num-envs 2 --learner.steps-per-env 8 --learner.batch-size 8 --learner.epochs 1 --steps 32 {JUDGED}"


@dataclass(frozen=True)
class Small:
    """How a command is run here."""

    more: str = ""
    """Options that follow those of the page, and count instead of them."""
    instead: tuple[tuple[str, str], ...] = ()
    """Words of the page that are replaced."""
    serves: str = ""
    """What it prints before its address, where it serves until it is interrupted."""
    slow: bool = False
    """Ten seconds or more, or a cluster: run with the slow tests."""
    status: tuple[int, ...] = (0,)


SMALL: dict[str, Small] = {
    # the first hour
    "robo-rl envs robo/ArmPick-v0": Small(),
    "robo-rl train arm-pick-rlpd --seed 1 --learner.lr 1e-4": Small(f"{PICK} --learner.updates-per-step 2"),
    "robo-rl resume latest": Small(),
    "robo-rl evaluate latest --episodes 200": Small(instead=(("200", "2"),)),
    "robo-rl play latest": Small("--no-browser --port 0 --viewer browser", serves="plays at "),
    "robo-rl learners": Small(),
    "robo-rl train arm-pick-rlpd --seeds 0-4": Small(PICK, (("0-4", "0-1"),)),
    "robo-rl compare RUN_A RUN_B": Small(),
    "robo-rl doctor": Small(status=(0, 1)),  # 1 if this machine has a problem, such as a full disk
    # data
    "robo-rl record robo/ArmPick-v0 --episodes 100 --out data/pick": Small(instead=(("100", "2"),)),
    "robo-rl data view data/pick": Small("--no-browser --port 0", serves="is shown at "),
    "robo-rl data convert data/pick --to lerobot --out pick-v3": Small(),
    "robo-rl train offline-iql --dataset data/pick": Small(f"--steps 5 --learner.hidden 8 --learner.batch-size 8 {JUDGED}"),
    # people and robots
    "robo-rl train arm-pick-hil": Small(PICK),
    "robo-rl demo hil": Small("--human simulated --steps 40 --episodes 1 --out demo --speed 3", slow=True),
    "robo-rl refine RUN --robot URL --dataset DATASET": Small("--steps 20 --episodes 1 --seed 0", slow=True),
    # rewards
    "robo-rl reward fit embedded --environment robo/ArmPick-v0 --out rewards/pick": Small(
        "--pictures 120 --settings.see-steps 4 --settings.read-steps 4", slow=True
    ),
    "robo-rl record robo/ArmPick-v0 --policy mix:scripted=0.5,random=0.5 --episodes 60 --out data/seen "
    "--environment.arguments.cameras [front] --environment.arguments.image_size 192": Small(instead=(("60", "4"),), slow=True),
    "robo-rl audit embedded-progress --reward.settings.folder rewards/pick --dataset data/seen --out audits/pick": Small(
        slow=True
    ),
    "robo-rl label data/seen --reward embedded-progress --reward.settings.folder rewards/pick --name mine": Small(slow=True),
    "robo-rl train arm-pick-vlm": Small(PICK, slow=True),
    "robo-rl reward write arm-push-sac --llm pack:text2reward-push --out rewards/push": Small(),
    "robo-rl train arm-push-sac --reward.name program:rewards/push/program.py": Small(ARM),
    "robo-rl reward latent gymnasium/Reacher-v5 --llm pack:lare-reacher --out rewards/reacher.py": Small(),
    "robo-rl train reacher-lare": Small(f"{ARM} --reward.settings.steps 4"),
    "robo-rl train minigrid-doorkey-beacons": Small(PPO),
    # driving, experiments, many machines
    "robo-rl train drive-route": Small(PPO, slow=True),
    "robo-rl carla-server --map grid --traffic 20": Small("--port 0", serves="carla.Client("),
    "robo-rl sweep arm-pick-rlpd --space space.yaml --trials 50": Small(f"{PICK} --seeds 0-0", (("50", "1"),)),
    "robo-rl train halfcheetah-ppo --collectors 4": Small(f"{PPO}", (("4", "2"),), slow=True),
    "robo-rl train arm-pick-rlpd --seeds 0-9 --ray 10.0.0.1:6379": Small(
        PICK, (("0-9", "0-1"), ("10.0.0.1:6379", "auto")), slow=True
    ),
    "robo-rl study pictures --out studies/pictures --jobs 2": Small("--table"),  # trains nothing: it would be hours
    "robo-rl bench env": Small("--seconds 0.05 --repeats 1 --only HalfCheetah"),
}


def blocks(page: Path = FIRST_HOUR) -> list[list[str]]:
    """Returns the commands of a page, block by block."""
    found = re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [[re.split(r"\s+# ", line)[0].strip() for line in block.splitlines()] for block in found]
    return [block for each in lines if (block := [line for line in each if line.startswith("robo-rl ")])]


def test_every_command_has_a_row_here() -> None:
    assert [command for block in blocks() for command in block] == [*SMALL]


@pytest.mark.parametrize("block", blocks(README))
def test_readme_shows_commands_of_the_first_hour(block: list[str]) -> None:
    (whole,) = (each for each in blocks() if block[0] in each)
    assert [command for command in whole if command in block] == block


def filled(command: str, names: dict[str, str]) -> list[str]:
    """Returns the words of a command as they are run here."""
    row = SMALL[command]
    words = [dict(row.instead).get(word, word) for word in shlex.split(command)[1:]]
    return [names.get(word, word) for word in words] + shlex.split(row.more)


def serve(words: list[str], says: str) -> None:
    """Runs a command that serves until it says its address, looks whether it answers, and interrupts it."""
    with subprocess.Popen([sys.executable, "-m", "robo_cli.main", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if says in line)
            if address := re.search(r"http://\S+", line):
                assert urllib.request.urlopen(address[0], timeout=30).status == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def run(command: str, names: dict[str, str]) -> None:
    words, row = filled(command, names), SMALL[command]
    if row.serves:
        serve(words, row.serves)
    else:
        assert dispatch(words) in row.status, command


def names_before(commands: list[str], is_slow: bool) -> dict[str, Any]:
    """Returns what stands for names that a block takes from elsewhere."""
    Path("space.yaml").write_text("learner.lr: {low: 1.0e-4, high: 1.0e-3, log: true}\n")
    if is_slow and any("URL" in command for command in commands):
        dispatch(shlex.split(f"train arm-pick-rlpd {PICK} --out before"))
        dispatch(shlex.split("record robo/ArmPick-v0 --episodes 1 --out data/demos --environment.arguments.action_repeat 3"))
        return {"RUN": str(find_run("latest", Path("before")).path), "DATASET": "data/demos"}
    return {}


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["cheap", "all"])
@pytest.mark.parametrize("number", range(len(blocks())))
def test_first_hour_runs_in_order(number: int, is_slow: bool) -> None:
    commands = [command for command in blocks()[number] if is_slow or not SMALL[command].slow]
    names = names_before(commands, is_slow)
    for command in commands:
        if "RUN_A" in command:
            seeds = sorted(Path("runs/arm-pick-rlpd-seeds/runs").iterdir())
            names |= {"RUN_A": str(seeds[0]), "RUN_B": str(seeds[1])}
        if "URL" in command:
            with twin_process(Path("twin.log"), task="robo/ArmPick-v0") as address:
                run(command, names | {"URL": address})
        else:
            run(command, names)
