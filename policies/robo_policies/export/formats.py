"""Formats of exported policies, which commands list without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Format = Literal["onnx", "torchscript", "safetensors"]
FILES: Mapping[Format, str] = {"onnx": "policy.onnx", "torchscript": "policy.pt", "safetensors": "policy.safetensors"}
"""Format -> name of the file."""
