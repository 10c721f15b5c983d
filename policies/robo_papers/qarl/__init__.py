"""QARL and RARL: training a robot's policy against an adversary that pushes it."""
