"""GAIL: imitation of an expert by a discriminator, which pays the policy for being taken for the expert."""
