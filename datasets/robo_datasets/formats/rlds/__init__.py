"""Datasets in RLDS, such as those of Open X-Embodiment, without TensorFlow."""
