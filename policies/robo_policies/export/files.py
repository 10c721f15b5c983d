"""Write and read the file of an exported network: ONNX, TorchScript or safetensors."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from robo_policies.export.acting import ActingNetwork
from robo_policies.export.formats import Format
from robo_rl.errors import UnknownName, optional
from robo_rl.spec.action import ActionSpec
from robo_rl.types import Array

Run = Callable[[Mapping[str, Array]], list[Array]]
"""A network as a function from named arrays to a list of arrays."""


class PhysicalNetwork(nn.Module):
    """Network for an export that takes one observation, without an axis for rows, and returns actions in physical units.

    Actions are clipped to their limits.
    """

    low: Tensor
    half_width: Tensor

    def __init__(self, acting: ActingNetwork, action: ActionSpec) -> None:
        super().__init__()
        self.network = acting.network
        self._is_discrete = action.is_discrete
        low, high = (np.asarray(limits, np.float64) for limits in (action.low, action.high))
        self.register_buffer("low", torch.from_numpy(low.astype(np.float32)))
        self.register_buffer("half_width", torch.from_numpy((0.5 * (high - low)).astype(np.float32)))

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the action (A,), choice () or chunk (H, A), then the outputs that the next step gets as input."""
        actions, *memory = (each[0] for each in self.network({name: value[None] for name, value in inputs.items()}))
        if not self._is_discrete:
            actions = self.low + (actions.clamp(-1.0, 1.0) + 1.0) * self.half_width
        return (actions, *memory)


def require_format(name: str) -> Format:
    """Return the format of a name; raises UnknownName for another name, MissingExtra if its packages are not installed."""
    if name not in get_args(Format):
        raise UnknownName("format of an export", name, get_args(Format))
    if name == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            with optional("An export to ONNX", package, "export"):
                __import__(package)
    found: Format = name  # type: ignore[assignment]
    return found


def write(network: PhysicalNetwork, to: Format, path: Path, inputs: Mapping[str, Array], memory: Mapping[str, object]) -> None:
    """Write the file of a network.

    Args:
        network: The network.
        to: Format.
        path: File that is written.
        inputs: An example of each input by name.
        memory: Names of the inputs that are outputs of the previous step.
    """
    example = {name: torch.from_numpy(value) for name, value in inputs.items()}
    outputs = ["action", *(f"next_{name}" for name in memory)]
    with _quiet(), torch.no_grad():
        if to == "onnx":
            torch.onnx.export(
                network,
                (),
                path,
                kwargs={"inputs": example},
                input_names=list(example),
                output_names=outputs,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        elif to == "torchscript":
            torch.jit.trace(network, (example,), strict=False, check_trace=False).save(path)
        else:
            save_file({name: value.contiguous().clone() for name, value in network.state_dict().items()}, path)


def opened(network: PhysicalNetwork, to: Format, path: Path) -> Run:
    """Return a function that evaluates the network in a written file; weights alone (safetensors) are loaded into `network`."""
    if to == "safetensors":
        network.load_state_dict(load_file(path))
        return lambda inputs: run(network, inputs)
    from robo_policies.export.run_exported import load

    with _quiet():
        found: Run = load(path)
    return found


def run(network: nn.Module, inputs: Mapping[str, Array]) -> list[Array]:
    """Evaluate a network on named arrays; return its outputs as a list of arrays."""
    with torch.no_grad():
        return [each.numpy() for each in network({name: torch.from_numpy(value) for name, value in inputs.items()})]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of the exporters about deprecations, optional packages and fixed shapes."""
    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "onnxscript", "onnx_ir")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    checks = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)  # a check of values has no place in a graph
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        torch.distributions.Distribution.set_default_validate_args(checks)
