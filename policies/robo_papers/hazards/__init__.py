"""Task with a constraint cost that trains in a minute: a point mass or a car among disc hazards."""
