"""Learners and the networks they train, one file per method."""
