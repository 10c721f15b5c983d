"""Reward programs written by a language model: Text2Reward, Eureka-style search, ICPL."""
