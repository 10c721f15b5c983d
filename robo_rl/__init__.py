"""Robotics and control reinforcement learning: one line of data from simulator or robot to trained policy."""
