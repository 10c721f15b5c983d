"""A point mass and a car among discs: a task with a constraint cost that trains in a minute."""
