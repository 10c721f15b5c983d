"""Faster replacements of small networks on a CPU, with derivatives written out; tests compare their results with PyTorch."""
