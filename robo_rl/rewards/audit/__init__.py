"""The audit of a reward: how far it agrees with what was recorded, what it says of spoilt clips, and whether to trust it."""
