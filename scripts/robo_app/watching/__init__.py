"""Live page of trainings: `robo-rl watch`. Reads run folders alone, also those that another machine writes."""
