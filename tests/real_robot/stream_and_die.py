"""Drives a served robot at its own rate and says when it begins: to be killed at any moment.

stream_and_die.py URL          until it is killed
stream_and_die.py URL pause    stops itself once between a measurement and the command that answers it; says what became of that
"""

import os
import signal
import sys

from robo_real.clock import ControlLoop
from robo_real.remote_robot import RemoteRobot

robot = RemoteRobot(sys.argv[1], owner="streamer", timeout=20.0)
robot.connect()
robot.arm()
loop = ControlLoop(robot.clock, 0.05)
for step in range(1000):
    robot.observe()
    if step == 6 and sys.argv[2:] == ["pause"]:
        os.kill(os.getpid(), signal.SIGSTOP)
        print("refused:", *robot.apply([0.3, 0, 0, 0, 1]).reasons, flush=True)
    robot.apply([0.3 if step % 40 < 20 else -0.3, 0, 0, 0, 1])
    if step == 5:
        print("under way", flush=True)
    loop.wait()
