"""The algorithms of Stable-Baselines3 (SB3) as learners of robo_rl: PPO, SAC, TD3 and others."""
