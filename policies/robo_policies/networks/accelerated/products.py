"""Products of matrices on a CPU with AVX-512, by oneDNN, or by NumPy.

At 256 rows and 256 units oneDNN takes 0.14 ms on one core of an AMD EPYC, the OpenBLAS of NumPy 0.25 ms and the MKL behind
torch.mm 0.29 ms: both choose kernels for AVX2 there. PyTorch computes float32 by oneDNN only in this operator, which has no
separate derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

HAS_ONEDNN = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
SMALL = 1 << 12
"""Elements of a matrix below which NumPy's products are faster, such as one row or a layer of few outputs."""
_onednn: Any = torch.ops.mkldnn._linear_pointwise.default if HAS_ONEDNN else None


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """Return inputs (B, in) times the transpose of weight (out, in), plus bias (out,), optionally through a ReLU."""
    if HAS_ONEDNN and inputs.numel() >= SMALL and weight.numel() >= SMALL:
        found: Tensor = _onednn(inputs, weight, bias, "relu" if relu else "none", [], "")
        return found
    with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are rejected with a better message
        product = np.matmul(inputs.numpy(), weight.numpy().T)
        if bias is not None:
            product += bias.numpy()
        if relu:
            np.maximum(product, 0.0, out=product)
    return torch.from_numpy(product)
