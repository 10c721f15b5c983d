"""Recording of episodes into datasets: actors, families of datasets, reference scores."""
