"""QARL and RARL: training against adversaries."""
