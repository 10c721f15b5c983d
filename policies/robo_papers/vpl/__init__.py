"""Rewards of people who differ: a latent number per person, inferred from answers."""
