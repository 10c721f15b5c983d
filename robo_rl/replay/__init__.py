"""Replay: rows, storage, sampling and mixing of recorded steps."""

from robo_rl.replay.buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
