"""Progress of an episode towards success, learned from successes and failures; finds the steps that lost time."""
