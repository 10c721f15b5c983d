"""Checks that all rewards and image-text models must pass, in this package and in others'.

from robo_rl.rewards.conformance import check_image_text_model, check_online_reward, check_reward

check_reward(MyReward(), episodes)                      # raises ConformanceFailure
check_online_reward(MyReward(), SPEC, episodes)
check_image_text_model(MyModel(), pictures, texts)
"""

from robo_rl.rewards.conformance.image_text import check_image_text_model
from robo_rl.rewards.conformance.online import check_online_reward
from robo_rl.rewards.conformance.rewards import check_reward

__all__ = ["check_image_text_model", "check_online_reward", "check_reward"]
