"""Devices that a person drives a robot with: keyboard, gamepad, SpaceMouse."""
