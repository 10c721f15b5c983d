"""Tasks of several steps: reward machines, and formulas that become them."""
