"""Models of environments that are learned from recorded steps: dynamics, fits, worlds in files, branches, checks."""
