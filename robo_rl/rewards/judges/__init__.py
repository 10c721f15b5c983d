"""Judges: models that answer questions about pictures, and the rewards made of their answers."""
