"""Learning algorithms, one module for each, such as `sac` (SAC), `ppo` (PPO) and `bc` (behaviour cloning).

A module holds a settings class (`SACConfig`) whose method `build` makes the learner (`SAC`).
"""
