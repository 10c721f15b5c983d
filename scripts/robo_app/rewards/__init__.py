"""Writing and searching of reward programs, rating of clips."""
