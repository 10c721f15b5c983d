"""The operator's console: a page on which a person watches a robot, takes over, stops it and labels episodes."""
