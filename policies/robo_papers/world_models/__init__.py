"""World models: environments that are learned from recorded episodes, and a check how far to believe them."""
