"""PPO-Saute: PPO that observes the remaining budget of each cost."""
