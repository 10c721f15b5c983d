"""Text2Grad: remarks on spans of time of an episode become rewards of its steps."""
