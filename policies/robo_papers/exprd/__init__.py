"""EXPRD: rewards that are designed by a teacher who knows the model of the environment."""
