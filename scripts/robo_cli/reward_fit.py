"""robo-rl reward fit: learn a reward and keep it in a folder. Each kind has its own module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from robo_cli.reward_fit_classifier import FitClassifier, fit_classifier
from robo_cli.reward_fit_embedded import FitEmbedded, fit_embedded
from robo_cli.reward_fit_preference import FitPreference, fit_preference

Kind = (
    Annotated[FitPreference, tyro.conf.subcommand("preference")]
    | Annotated[FitEmbedded, tyro.conf.subcommand("embedded")]
    | Annotated[FitClassifier, tyro.conf.subcommand("classifier")]
)
FITS: dict[type, Callable[[Any], int]] = {
    FitPreference: fit_preference,
    FitEmbedded: fit_embedded,
    FitClassifier: fit_classifier,
}


@dataclass(frozen=True)
class Fit:
    """Fit a reward, store it in a folder, and print its scores on held-out data."""

    kind: tyro.conf.OmitSubcommandPrefixes[Kind]


def fit_reward(arguments: Fit) -> int:
    """Fits a reward of one kind."""
    return FITS[type(arguments.kind)](arguments.kind)
