"""Acting and learning in two processes: one keeps the control rate of a robot, the other learns; either may die and restart.

acting.ActingTraining ── steps ──▶ a log on disk ──▶ learning.LearningTraining: memory, updates, checkpoints
                      ◀── parameters, heartbeats ── process.LearnerProcess ◀─ server.LearnerServer
"""
