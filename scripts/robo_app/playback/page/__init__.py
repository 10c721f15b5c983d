"""Page of `robo-rl play`: newest picture and numbers of an episode, and buttons to pause, restart and skip it."""
