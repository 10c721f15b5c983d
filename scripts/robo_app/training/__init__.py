"""Trainings: assembly of their parts, initialisation, finalisation, recording, evaluation."""
