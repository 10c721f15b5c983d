"""GAIL: imitation by a discriminator."""
