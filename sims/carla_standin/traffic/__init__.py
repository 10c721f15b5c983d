"""Cars that drive themselves, the same for the same seeds: they keep distance, obey lights and priority, and change lanes."""
