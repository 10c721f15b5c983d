"""A web page of this machine's own to look at a recorded dataset: `robo-rl data view DATASET`."""
