"""Objectives other than the sum of rewards: the largest or smallest reward, the mean of the worst returns."""
