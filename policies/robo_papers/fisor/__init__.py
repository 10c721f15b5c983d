"""FISOR: safe policies from recorded data, with constraints that must never be violated."""
