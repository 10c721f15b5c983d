"""SRPO: failures that look like successes."""
