"""ReCOIL: imitation with the help of any data."""
