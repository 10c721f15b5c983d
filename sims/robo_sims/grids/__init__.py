"""Grid worlds as arrays: cells, views, batches, subgoals."""
