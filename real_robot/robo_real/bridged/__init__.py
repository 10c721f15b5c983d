"""Devices in an interpreter of their own, whose packages are at odds with ours: LeRobot, ROS 2."""
