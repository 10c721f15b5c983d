"""Live page of trainings (`robo-rl watch`). It only reads run folders, also those that another machine writes."""
