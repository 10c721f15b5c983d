"""BARFI: how much a heuristic counts."""
