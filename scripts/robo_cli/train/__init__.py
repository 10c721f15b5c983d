"""Commands that train, evaluate and play policies."""
