"""Trainings, recordings and labelling on a Ray cluster."""
