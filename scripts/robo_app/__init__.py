"""Application logic below the command line: recipes, trainings, recordings, experiments, sweeps."""
