"""Public data sets: their sources, download and check, and conversion to datasets."""
