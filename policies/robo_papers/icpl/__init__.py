"""Searches for reward programs by training with each: chosen by success (Eureka), or by preferences (ICPL)."""
