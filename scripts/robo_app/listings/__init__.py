"""Lists of components with their purposes, made without importing the components."""
