"""Training loops: off-policy, on-policy, and from recorded episodes; in one process or several."""

from robo_rl.training.off_policy import OfflineTraining, OnlineTraining, StepLearner, StepLoop, online_training

__all__ = ["OfflineTraining", "OnlineTraining", "StepLearner", "StepLoop", "online_training"]
