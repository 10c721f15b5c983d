"""GR-RL: progress of an episode towards success, learned from successes and failures, finds steps that lost time."""
