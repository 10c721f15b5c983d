"""The audit of a reward: its agreement with the recorded truth, its scores of spoilt clips, and the verdict."""
