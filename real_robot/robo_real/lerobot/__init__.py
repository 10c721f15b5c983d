"""LeRobot devices in an interpreter of their own, whose packages are at odds with ours."""
