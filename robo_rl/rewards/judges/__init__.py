"""Judges: models that answer questions about pictures, and rewards computed from their answers."""
