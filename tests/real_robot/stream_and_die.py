"""Drives a served robot at its own rate and says when it begins: to be killed or paused at any moment.

stream_and_die.py URL
"""

import sys

from robo_real.control_loop import ControlLoop
from robo_real.remote import RemoteRobot

robot = RemoteRobot(sys.argv[1], owner="streamer")
robot.connect()
robot.arm()
loop = ControlLoop(robot.clock, 0.05)
for step in range(1000):
    robot.observe()
    robot.apply([0.3 if step % 40 < 20 else -0.3, 0, 0, 0, 1])
    if step == 5:
        print("under way", flush=True)
    loop.wait()
