"""Stand-in for lerobot.cameras: a package without cameras."""

__path__ = []
