"""Sensors: what each measures, as bytes that the client decodes."""
