"""Config files of LeRobot devices for tests: on LeRobot's stand-in, or on LeRobot where an interpreter has it."""

import json
import os
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
STAND_IN, DEVICES = HERE / "lerobot_standin", HERE / "lerobot_devices"
LEROBOT = os.environ.get("ROBO_RL_PEERS_PYTHON")
JOINTS = {"shoulder_pan": "pan", "shoulder_lift": "lift", "elbow_flex": "elbow", "wrist_flex": "flex", "wrist_roll": "roll"}


def servo_arm(folder: Path, *, python: str | None = None, robot: dict | None = None, **config) -> dict:
    """Return the driver's options for a servo arm; python: an interpreter with LeRobot, by default ours with the stand-in."""
    content = {
        "robot": {"type": "servo_arm", "journal": journal_of(folder), **(robot or {})},
        "model": str(DEVICES / "servo_arm.xml"),
        "hand": "grip",
        "joints": {joint: {"feature": f"{motor}.pos"} for joint, motor in JOINTS.items()},
        "gripper": {"feature": "gripper.pos", "closed": 0, "open": 100, "width": 0.08},
        "modules": ["servo_arm"],
        "path": [str(DEVICES), *([] if python else [str(STAND_IN)])],
    }
    path = folder / "arm.yaml"
    content |= config
    if "teleoperator" in content:
        del content["robot"]
    path.write_text(yaml.safe_dump(content))
    return {"config": path, "python": python or sys.executable}


def journal_of(folder: Path) -> str:
    return str(folder / "journal.jsonl")


def journal(folder: Path) -> list[dict]:
    """Return the events at the motors."""
    return [json.loads(line) for line in Path(journal_of(folder)).read_text().splitlines()]
