"""Kernels for small networks on a CPU, derivatives written out, behind the modules of networks/."""
