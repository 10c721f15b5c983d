"""robo-rl fit-encoder: fit a frozen encoder of pictures to a simulator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from robo_app.arguments.free_settings import EnvironmentArguments, option_words
from robo_app.display.display import counted
from robo_policies.encoders.settings import EncoderFit
from robo_rl.environments.make import make_environment
from robo_rl.system.threads import fitting

EXAMPLES = """robo-rl fit-encoder robo/ArmPick-v0 --out encoders/pick --environment.arguments.image_size 64
robo-rl train arm-pick-rlpd --environment.arguments.sees both --environment.arguments.image_size 64 \\
    --environment.wrappers.encoded.encoder fitted:encoders/pick"""


@dataclass(frozen=True)
class FitEncoder:
    """Fit convolutions to the objects and goals that a simulator knows; their features serve learners in place of pictures."""

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENVIRONMENT")]
    """With observed objects or goals, the targets; by default with the cameras front and wrist."""
    out: Path
    """A new folder."""
    arguments: EnvironmentArguments = field(default_factory=dict)
    """Setting of the environment, such as --environment.arguments.image_size 64"""
    settings: EncoderFit = field(default_factory=EncoderFit)


@fitting
def run(arguments: FitEncoder) -> int:
    """Record steps, fit, save, and print errors on held-out episodes."""
    from robo_policies.encoders.fitting import collect, fit_encoder  # imports torch, which the options do not need
    from robo_rl.rewards.fitted_folder import require_empty

    require_empty(arguments.out)
    chosen = {"cameras": ["front", "wrist"], **arguments.arguments}
    environment = make_environment(arguments.environment, **chosen)
    try:
        frames = collect(environment, arguments.settings, shown)
    finally:
        environment.close()
    facts = {"environment": arguments.environment, "arguments": chosen}
    for row in fit_encoder(frames, arguments.out, arguments.settings, facts, shown):
        print(row.line())
    used = {"sees": "both", **{key: value for key, value in chosen.items() if key != "cameras"}}
    words = " ".join(option_words("environment.arguments", used))
    print(
        f"use it: --environment {arguments.environment} {words} --environment.wrappers.encoded.encoder fitted:{arguments.out}"
    )
    return 0


def shown(steps: Sequence[int], title: str) -> Iterable[int]:
    """Yield steps and show progress."""
    return counted(title, "steps", steps)
