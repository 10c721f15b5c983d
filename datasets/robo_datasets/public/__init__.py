"""Public sets of data: where they are, how they are fetched and checked, and how they become datasets."""
