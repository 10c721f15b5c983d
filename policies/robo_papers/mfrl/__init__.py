"""MFRL: quadrotor plans that are learned from a cheap check of feasibility and few real flights."""
