"""Reward programs for the tasks of the arm, written by hand: examples, and a starting point for programs of your own.

They are read and checked as text and run in the sandbox, never imported: the sandbox provides `np`.
"""
