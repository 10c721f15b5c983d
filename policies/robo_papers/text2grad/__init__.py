"""Remarks on spans of time as rewards of steps (Text2Grad)."""
