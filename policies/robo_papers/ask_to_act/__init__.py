"""Ask-to-Act: an environment in which questions cost something."""
