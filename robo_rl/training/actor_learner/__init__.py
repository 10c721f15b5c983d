"""Acting and learning in two processes: one keeps the rate of a robot, the other learns; either may die.

acting.ActingTraining ── steps ──▶ a log on disk ──▶ learning.LearningTraining: memory, updates, checkpoints
                      ◀── parameters, beats ── process.LearnerProcess ◀─ server.LearnerServer
"""
