"""Frozen encoders of pictures: fitted here to a simulator, or pre-trained and read from a folder."""
