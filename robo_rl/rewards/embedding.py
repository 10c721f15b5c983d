"""What image-text models that run here by torch share: batches, a device, vectors of length 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import InvalidSetting

Prepared = TypeVar("Prepared")


def embedded(
    items: Sequence[Any] | npt.NDArray[Any],
    batch: int,
    prepare: Callable[[Any], Prepared],
    embed: Callable[[Prepared], torch.Tensor],
) -> npt.NDArray[np.float32]:
    """Returns (N, D) unit vectors, of batches of about the same size, so that equal items have equal answers.

    Nothing is prepared in a thread beside: torch would begin as many threads again for it, in the way of the model's.
    """
    bounds = np.linspace(0, len(items), -(-len(items) // batch) + 1).round().astype(int).tolist()
    batches = [items[start:stop] for start, stop in pairwise(bounds)]
    with torch.inference_mode():
        parts = [embed(prepare(some)) for some in batches]
        found = torch.cat(parts).float()
        vectors: npt.NDArray[np.float32] = (found / found.norm(dim=-1, keepdim=True)).cpu().numpy()
    return vectors


def on_device(model: torch.nn.Module, device: str) -> Any:
    """Returns a model ready to be asked on a device; raises InvalidSetting where that is not there."""
    try:
        return model.eval().requires_grad_(False).to(device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidSetting(
            "The device cannot be used.", got=f"{device}: {str(error).splitlines()[0]}", allowed="cpu, cuda, cuda:1, mps, ..."
        ) from error
