"""Networks of the learners: encoders, actors, critics."""
