"""Rewards of single steps, learned from the returns of whole episodes alone (RD, RRD, LaRe)."""
