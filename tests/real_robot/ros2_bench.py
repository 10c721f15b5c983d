"""Config files of arms behind ROS 2 for tests, on the stand-in of rclpy; and the node of such an arm."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

HERE = Path(__file__).parent
STAND_IN, NODES, MODEL = HERE / "rclpy_standin", HERE / "ros2_nodes", HERE / "lerobot_devices" / "servo_arm.xml"
JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"]


class Bench:
    """One ROS domain: a folder, and the nodes that were started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes = folder, []
        self._bus = tempfile.TemporaryDirectory(prefix="bus")  # socket names have at most 108 letters
        self.setup = folder / "setup.bash"
        self.setup.write_text(f'export PYTHONPATH="{STAND_IN}" ROS_STANDIN_BUS="{self._bus.name}"\n')

    def start(self, **faults) -> subprocess.Popen:
        """Start the node of an arm."""
        script = f'source "{self.setup}"; exec "$@"'
        node = [sys.executable, str(NODES / "servo_node.py"), str(self.folder / "journal.jsonl"), json.dumps(faults)]
        self.nodes.append(subprocess.Popen(["bash", "-c", script, "node", *node], stderr=subprocess.DEVNULL))
        return self.nodes[-1]

    def options(self, **changes) -> dict:
        """Return the driver's options."""
        content = {
            "setup": self.setup.name,
            "states": "/joint_states",
            "commands": {"topic": "/arm/joint_trajectory", "type": "JointTrajectory"},
            "model": str(MODEL),
            "hand": "grip",
            "joints": JOINTS,
            "gripper": {"feature": "finger", "closed": 0.0, "open": 0.08, "width": 0.08},
            "gripper_commands": {"action": "/gripper/gripper_cmd", "max_effort": 20.0},
            "rate": 100,
        }
        path = self.folder / "arm.yaml"
        path.write_text(yaml.safe_dump(content | changes))
        return {"config": path, "python": sys.executable}

    def journal(self) -> list[dict]:
        """Return the events at the servos."""
        path = self.folder / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, event: str, timeout: float = 5.0) -> dict:
        """Return the first event of a kind."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if found := [each for each in self.journal() if each["event"] == event]:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"no {event}: {self.journal()[-3:]}")

    def close(self) -> None:
        """End the nodes."""
        for node in self.nodes:
            node.kill()
            node.wait()
        self._bus.cleanup()
