"""A training makes environments to step in, and at most one to read a spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robo_app.recipes.files import recipe_files
from robo_cli import main
from robo_rl.entry_points import load
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.types import Labels
from robo_sims.arm.family import FAMILY


@dataclass
class Made:
    """Environments made so far, and those that were ever reset."""

    count: int = 0
    stepped: set[int] = field(default_factory=set)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    found, make = Made(), type(FAMILY).make

    def counted(family: Any, name: str, **arguments: Any) -> Any:
        environment, number = make(family, name, **arguments), found.count
        found.count += 1
        reset = environment.reset

        def noted(**options: Any) -> Any:
            found.stepped.add(number)
            return reset(**options)

        environment.reset = noted
        return environment

    monkeypatch.setattr(type(FAMILY), "make", counted)
    return found


SHORT = {
    "steps": 12,
    "environment": {"name": "robo/ArmPick-v0", "arguments": {"max_steps": 5}},
    "demonstrations": {},
    "evaluation": {"every": 6, "episodes_during": 1, "episodes": 1, "videos": 0},
}


@dataclass(frozen=True, kw_only=True)
class Brightness(PictureReward):
    """The mean of a picture."""

    @property
    def identity(self) -> tuple[str, str]:
        return "brightness", "0"

    def score(self, pictures: Any, firsts: Any, instruction: str | None) -> Labels:
        return Labels(pictures.mean((1, 2, 3), np.float32) / 255, np.ones(len(pictures), np.bool_))


def load_brightness(group: Any, name: str) -> Any:
    return Brightness if name == "brightness" else load(group, name)


def shortened(name: str, **changes: Any) -> Path:
    """Return a file of a recipe of ours, with small networks and few steps."""
    tree = yaml.safe_load(recipe_files()[name].read_text()) | SHORT | changes
    tree["learner"] |= {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 5, "offline_fraction": 0.0}}
    path = Path(f"{name}-short.yaml")
    path.write_text(yaml.safe_dump({key: value for key, value in tree.items() if key != "needs"}))
    return path


PICTURES = {
    "name": "brightness",
    "settings": {"mode": "potential", "discount": 0.95},
    "arguments": {"cameras": ["front"], "image_size": 16},
    "completion": {"name": "brightness", "threshold": 1.0},
}


@pytest.mark.parametrize(
    ("name", "changes", "read"),
    [
        ("arm-pick-rlpd", {}, 0),
        pytest.param("arm-pick-rlpd", {"learner_process": "on"}, 0, marks=pytest.mark.slow),
        pytest.param("arm-pick-vlm", {"reward": PICTURES}, 1, marks=pytest.mark.slow),  # without what is drawn for the reward
    ],
)
def test_training_makes_no_environment_in_vain(
    name: str, changes: dict[str, Any], read: int, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robo_app.recipes.reward_file.load", load_brightness)
    assert main.dispatch(["train", str(shortened(name, **changes))]) == 0
    assert len(made.stepped) == 3, "training, evaluation during training, final evaluation"
    assert made.count - len(made.stepped) == read
