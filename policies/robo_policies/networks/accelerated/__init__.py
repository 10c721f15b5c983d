"""Kernels: small networks on a CPU with derivatives by hand, and Adam in one call; each has its reference."""
