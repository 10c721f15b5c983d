"""Content of policy.json: inputs, outputs and use of an exported policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robo_policies.export.acting import NOISE, ActingNetwork
from robo_policies.export.formats import FILES, Format
from robo_rl.spec.environment import EnvironmentSpec, ObservationSpec

VERSION = 1
"""Version of the format of policy.json."""
PLAIN = "Evaluate the network once a control period with the newest observation; execute the action."
CHUNKED = "Evaluate the network, execute the first {executed} of its {chunk} actions, one a control period, evaluate again."
OVERLAPPING = (
    "Evaluate the network in every control period; execute the mean of what the last {chunk} evaluations say of it, "
    "weights exp(-rate i), i = 0 for the oldest."
)
NOISY = " Draw its noise anew, standard normal, at each evaluation."
REMEMBERING = " Feed the outputs next_NAME back as NAME; they are zeros at the start of an episode."


def described(acting: ActingNetwork, spec: EnvironmentSpec, to: Format, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Make the content of policy.json, which describes an exported policy, without the result of the check.

    Args:
        acting: Acting network of the policy.
        spec: Spec of the policy's environment.
        to: Format of the file.
        facts: Further entries about the origin, such as run and learner.
    """
    overlaps = acting.ensembling is not None
    words = OVERLAPPING if overlaps else CHUNKED if acting.chunk > 1 else PLAIN
    words += NOISY * bool(acting.draws) + REMEMBERING * bool(acting.memory)
    action = spec.to_json()["action"]
    control_period = action.pop("control_period")
    noise = [{"name": NOISE, "shape": [acting.draws, acting.chunk, spec.action.size], "dtype": "float32"}]
    return {
        "format": VERSION,
        "file": FILES[to],
        **facts,
        "environment": spec.name,
        "instruction": spec.instruction,
        "control_period": control_period,
        "inputs": [entry for entry in spec.to_json()["observation"]["arrays"] if entry["name"] in visible(spec)],
        "noise": noise if acting.draws else [],
        "memory": [{"name": name, "shape": [*shape], "dtype": "float32"} for name, shape in acting.memory.items()],
        "action": action,
        "loop": {
            "chunk": acting.chunk,
            "executed": acting.executed,
            "overlaps": overlaps,
            "rate": acting.ensembling or 0.0,
        },
        "how_to_act": words.format(executed=acting.executed, chunk=acting.chunk),
        "units": "SI, angles in rad, quaternions (w, x, y, z), pictures uint8 (height, width, channels); actions leave the "
        "network in the units of `action`, clipped to its limits",
    }


def visible(spec: EnvironmentSpec) -> ObservationSpec:
    """Return the entries of an observation that a deployed policy reads: all but privileged ones."""
    return spec.observation.visible
