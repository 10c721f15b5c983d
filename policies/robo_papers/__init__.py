"""Methods of papers, a folder for each, found by the paper.toml in it."""
