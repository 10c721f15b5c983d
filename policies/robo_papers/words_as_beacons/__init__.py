"""Words as beacons: a teacher gives subgoals for a level of a grid world; environments, tracking, encodings, teachers."""
