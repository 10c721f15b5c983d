"""PPO with the remaining budget of a cost in the state."""
