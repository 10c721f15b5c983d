"""Driving in plans of some seconds, judged in groups."""
