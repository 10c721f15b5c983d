"""MOPO: offline learning in a learned world that costs reward where it does not know."""
