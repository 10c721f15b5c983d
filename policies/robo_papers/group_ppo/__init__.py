"""Group PPO: PPO from groups of episodes that begin in one state, with several ways to credit single steps."""
