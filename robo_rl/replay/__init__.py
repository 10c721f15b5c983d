"""Replay memories: storage of steps, and sampling of batches from them."""

from robo_rl.replay.buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
