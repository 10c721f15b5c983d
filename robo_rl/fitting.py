"""Supervised fit of a network to data in memory, for rewards, encoders and world models; learners have updates of their own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

from robo_rl.errors import InvalidSetting, NonFiniteUpdate
from robo_rl.system.threads import tensor_threads, threads_of_a_fit

Rows = TypeVar("Rows")


def fit(
    network: nn.Module,
    data: Iterable[Rows],
    loss: Callable[[Rows], Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    title: str,
    largest_norm: float = math.inf,
    after: Callable[[int], None] = lambda _: None,
) -> float:
    """Take one optimiser step for each batch in `data`.

    The same batches and initial weights give the same network, so that the caller of `fit` has to seed `data`. It runs on one
    CPU thread, or on OMP_NUM_THREADS threads. No progress is shown; wrap the iterable that `data` is made from in a progress
    bar.

    Args:
        network: Module to fit.
        data: Batches; each is drawn after the step of the one before.
        loss: Returns the loss of a batch, a scalar tensor.
        optimizer: Optimiser of the network's parameters.
        title: Name of the fit in error messages.
        largest_norm: Gradients with a larger norm are scaled down to this norm.
        after: Called with the number of each update, from 0, after its step.

    Returns:
        Loss of the last batch; NaN without batches.

    Raises:
        NonFiniteUpdate: A loss is NaN or infinite. On a CPU this is raised before the step; on another device only after the
            last step, so that the network is spoilt.
    """
    found, total = torch.tensor(math.nan), torch.zeros(())
    with tensor_threads(threads_of_a_fit()):
        for update, rows in enumerate(data):
            optimizer.zero_grad()
            found = loss(rows)
            if found.is_cpu:
                _require_finite(found, update, title)
            else:
                total = total + found.detach()  # read once, because that waits for the device
            found.backward()
            if largest_norm < math.inf:
                nn.utils.clip_grad_norm_(network.parameters(), largest_norm)
            optimizer.step()
            after(update)
    _require_finite(total, None, title)
    return float(found.detach())


def _require_finite(loss: Tensor, update: int | None, title: str) -> None:
    if not math.isfinite(value := float(loss.detach())):
        when = "an update" if update is None else f"update {update}"
        fix = "look for numbers in the data that are not finite or very large, and take a smaller learning rate"
        raise NonFiniteUpdate(
            "The loss is not finite.", got=f"{value} in {when} of {title!r}", allowed="finite numbers", fix=fix
        )


class Best:
    """Memory of the parameters with which a network had its lowest held-out loss."""

    def __init__(self, network: nn.Module) -> None:
        """Start with the present parameters, which any finite loss replaces."""
        self._network, self.loss = network, math.inf
        self._parameters = copy.deepcopy(network.state_dict())

    def look(self, loss: float) -> None:
        """Keep the present parameters if `loss`, their held-out loss, is the lowest so far."""
        if loss < self.loss:
            self._parameters, self.loss = copy.deepcopy(self._network.state_dict()), loss

    def restore(self) -> None:
        """Load the kept parameters into the network."""
        self._network.load_state_dict(self._parameters)


def resolve_device(name: str) -> torch.device:
    """Return PyTorch's device for a setting such as "cuda" or "auto".

    Raises InvalidSetting, which lists the present devices.
    """
    cuda = ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))] if torch.cuda.is_available() else []
    mps = ["mps"] if torch.backends.mps.is_available() else []
    present = [*cuda, *mps, "cpu"]
    if name not in (*present, "auto"):
        what = "There is no such device."
        raise InvalidSetting(what, got=name, allowed=", ".join((*present, "auto")), fix="set device to one of these")
    return torch.device(present[0] if name == "auto" else name)
