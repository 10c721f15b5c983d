"""Bresa: a reflex inside a slow task policy, and the environments in contact that it is for."""
