"""Frozen encoders of pictures: fitted to a simulator by `robo-rl fit-encoder`, or pre-trained and read from a folder."""
