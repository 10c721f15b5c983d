"""GTR: reinforcement learning with a corrector at each step."""
