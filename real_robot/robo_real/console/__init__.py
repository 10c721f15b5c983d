"""Operator's console: a web page to watch a robot, take over, stop it and label episodes."""
