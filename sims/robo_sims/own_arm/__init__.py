"""Arm of anybody's, described by an MJCF or URDF file, with a task of its owner."""
