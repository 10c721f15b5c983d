"""Searches of reward programs: chosen by success (Eureka), or by preferences (ICPL)."""
