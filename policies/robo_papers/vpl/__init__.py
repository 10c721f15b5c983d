"""VPL: rewards of people who differ, by a latent vector per person that is inferred from their answers."""
