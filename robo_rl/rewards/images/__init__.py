"""Rewards from pictures, and the image-text models that they use."""

from robo_rl.rewards.images.picture_reward import PictureReward, Pictures

__all__ = ["PictureReward", "Pictures"]
