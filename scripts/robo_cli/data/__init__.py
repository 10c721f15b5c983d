"""Commands that record, inspect and label datasets."""
