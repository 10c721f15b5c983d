"""Learning algorithms, one file for each paper."""
