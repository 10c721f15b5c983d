"""Kernels for small networks on a CPU, with derivatives by hand; the modules that they stand behind are the reference."""
