"""Driving task whose actions are plans of some seconds, learned by comparing plans in groups (after AlphaDrive)."""
