"""World models: models of environments, learned from recorded steps; fits, files, imagined steps, checks."""
