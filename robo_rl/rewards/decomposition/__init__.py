"""Rewards of single steps that are learned from what whole episodes returned, and nothing else."""
