"""Runs and datasets in other places: folders, object stores, the Hugging Face hub."""
