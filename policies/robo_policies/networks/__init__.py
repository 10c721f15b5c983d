"""Neural networks of the learners, in PyTorch: encoders of observations, actors and critics."""
