"""Frozen encoders of pictures: fitted here, or pre-trained and read from a folder."""
