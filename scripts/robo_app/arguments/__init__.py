"""Options of the command line: reading, free settings, selection of runs."""
