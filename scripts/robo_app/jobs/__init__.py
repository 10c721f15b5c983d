"""Commands in child processes: pool of jobs, resumable trainings, interruption."""
