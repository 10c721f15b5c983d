"""Grid worlds as arrays of numbers: cells, what is seen of them, many environments at once."""
