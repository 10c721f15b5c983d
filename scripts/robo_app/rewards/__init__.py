"""Parts of commands about rewards: audit, preferences, writing of reward programs."""
