"""Commands in child processes: job pool, resumable trainings, interruption."""
