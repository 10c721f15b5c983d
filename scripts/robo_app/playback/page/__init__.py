"""The page of `robo-rl play`: the newest picture of an episode, its numbers, and buttons that steer it."""
