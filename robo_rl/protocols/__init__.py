"""Protocols of policies, learners, environments, robots and rewards."""

from robo_rl.protocols.components import (
    EnvironmentFamily,
    EpisodeRecorder,
    Learner,
    Policy,
    Robot,
    SavesItself,
    Stateful,
    Supervisor,
    Training,
    TrainingObserver,
    TrainingSupervisor,
    TransferablePolicy,
    VectorFactory,
)

__all__ = [
    "EnvironmentFamily",
    "EpisodeRecorder",
    "Learner",
    "Policy",
    "Robot",
    "SavesItself",
    "Stateful",
    "Supervisor",
    "Training",
    "TrainingObserver",
    "TrainingSupervisor",
    "TransferablePolicy",
    "VectorFactory",
]
