"""Recording of episodes: actors, dataset families, reference scores."""
