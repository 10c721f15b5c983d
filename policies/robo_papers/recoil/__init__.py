"""ReCOIL: imitation of few expert episodes with the help of any other data."""
