"""Adam on a list of tensors in one call, by the kernel behind torch.optim.Adam(fused=True).

The class torch.optim.Adam is not used: at its first step it imports TorchDynamo, which takes seconds in every run, and each
step costs 0.1 ms more, a fortieth of an update of SAC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

ADAM: Any = {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "amsgrad": False, "maximize": False}
"""Arguments of the fused kernel: the Adam paper's values, as in PyTorch."""
EPSILON = 1e-8
"""Adam's epsilon, the value of the paper."""
_fused: Any = getattr(torch, "_fused_adam_", None)
HAS_KERNEL = _fused is not None
"""True if this version of PyTorch has the private kernel; otherwise `plain_adam` computes the same in public operations."""


def plain_adam(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[Sequence[Tensor]],
    step: Tensor,
    lr: float,
    skipped: Tensor | None = None,
    *,
    epsilon: float = EPSILON,
) -> None:
    """Take one step of Adam in place.

    Args:
        parameters: Tensors that change.
        gradients: Gradient of each parameter.
        moments: First and second moments, one list each with a tensor for each parameter; they change, too.
        step: Number of this step, from 1, a scalar tensor.
        lr: Learning rate.
        skipped: Scalar tensor; 1 leaves parameters and moments unchanged, without a transfer from the device. None: 0.
        epsilon: Added to the root of the second moment.
    """
    taken = torch.ones_like(step) if skipped is None else 1.0 - skipped
    rate = taken * lr / (1.0 - ADAM["beta1"] ** step)
    for parameter, gradient, mean, square in zip(parameters, gradients, *moments, strict=True):
        found = gradient if skipped is None else torch.where(taken > 0.0, gradient, 0.0)
        mean.lerp_(found, taken * (1.0 - ADAM["beta1"]))
        square.lerp_(found.square(), taken * (1.0 - ADAM["beta2"]))
        scale = (square / (1.0 - ADAM["beta2"] ** step)).sqrt_().add_(epsilon)
        parameter.sub_(torch.where(taken > 0.0, rate * mean / scale, 0.0))


def fused_adam(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[Sequence[Tensor]],
    step: Tensor,
    lr: float,
    skipped: Tensor | None = None,
    *,
    epsilon: float = EPSILON,
) -> None:
    """Take one step of Adam in place, with the arguments of `plain_adam`, by PyTorch's fused kernel."""
    means, squares = moments
    steps = [step] * len(gradients)
    _fused(parameters, gradients, means, squares, [], steps, lr=lr, eps=epsilon, found_inf=skipped, **ADAM)
    torch.autograd.graph.increment_version(parameters)  # the kernel does not, so that later gradients would be wrong


adam = fused_adam if HAS_KERNEL else plain_adam
