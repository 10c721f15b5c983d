"""Kinds of cameras: one file each."""
