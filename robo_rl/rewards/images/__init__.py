"""Rewards of pictures, and the image-text models behind them."""

from robo_rl.rewards.images.picture_reward import PictureReward, Pictures

__all__ = ["PictureReward", "Pictures"]
