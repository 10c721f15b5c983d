"""File formats of exported policies (ONNX, TorchScript, safetensors), in a module without torch for quick commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Format = Literal["onnx", "torchscript", "safetensors"]
FILES: Mapping[Format, str] = {"onnx": "policy.onnx", "torchscript": "policy.pt", "safetensors": "policy.safetensors"}
"""Format -> name of the policy's file in the exported folder."""
