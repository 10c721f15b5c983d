"""Kernels for small networks on a CPU, with derivatives by hand; their modules are the reference."""
