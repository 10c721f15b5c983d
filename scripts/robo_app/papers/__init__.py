"""Conformance checks of papers."""
