"""Every image-text model keeps every rule, and each rule can fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from robo_rl.entry_points import known
from robo_rl.errors import ConformanceFailure, UnknownName
from robo_rl.rewards.conformance.image_text import IMAGE_TEXT_CHECKS, check_image_text_model, inputs_are_told_apart
from robo_rl.rewards.embedded.model import EmbeddedModel, Origin
from robo_rl.rewards.embedded.rewards import EmbeddedImageText
from robo_rl.rewards.images.colours import Colours

TEXTS = ("red", "green grey", "blue")


def embedded(folder) -> EmbeddedImageText:
    words = ("red", "green", "grey", "blue")
    torch.manual_seed(0)
    EmbeddedModel(Origin("arm", "front", 16, ("gripper",), words, TEXTS)).save(folder / "embedded")
    return EmbeddedImageText(folder=str(folder / "embedded"))


MODELS = {
    "colours": lambda _: Colours(),
    "embedded": embedded,
}
ELSEWHERE = {"transformers", "open-clip"}
"""Need an extra; their own tests in tests/rewards run the checks."""
PICTURES = np.full((9, 16, 16, 3), 30, np.uint8)
for place, picture in enumerate(PICTURES):  # a square that moves and changes its colour
    picture[place : place + 6, 10 - place : 16 - place] = (25 * place, 200 - 20 * place, 90)


def test_no_model_is_left_out():
    assert {*known("image_text_models")} == {*MODELS} | ELSEWHERE


CASES = [(name, check) for name in MODELS for check in IMAGE_TEXT_CHECKS]
CASES.remove(
    ("embedded", inputs_are_told_apart)
)  # with random weights it sees nothing, which is what this rule is there to find


@pytest.mark.parametrize(("name", "check"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_model_keeps_the_rule(name, check, tmp_path):
    check(MODELS[name](tmp_path), PICTURES, TEXTS)


def test_an_embedded_model_that_was_not_trained_is_found(tmp_path):
    with pytest.raises(ConformanceFailure, match="pictures differ"):
        check_image_text_model(embedded(tmp_path), PICTURES, TEXTS)


def test_a_word_that_is_no_colour_is_refused():
    with pytest.raises(UnknownName, match=r"Unknown colour 'rad'.\n.*\n.*\n.*did you mean 'red'"):
        Colours().embed_texts(["red", "rad"])


class TooLong(Colours):
    def embed_pictures(self, pictures):
        return 2 * super().embed_pictures(pictures)


class Blind(Colours):
    def embed_pictures(self, pictures):
        return super().embed_pictures(np.zeros_like(pictures))


class SeesItsNeighbours(Colours):
    def embed_pictures(self, pictures):
        found = super().embed_pictures(pictures)
        return found if len(found) < 2 else np.roll(found, 1, axis=0)


class NotFinite(Colours):
    def embed_pictures(self, pictures):
        found = super().embed_pictures(pictures)
        return found if pictures.shape[1] == pictures.shape[2] else found * np.nan


class Moody(Colours):
    asked = 0

    def embed_pictures(self, pictures):
        Moody.asked += 1
        return np.roll(super().embed_pictures(pictures), Moody.asked % 2, axis=1)


class Renamed(Colours):
    @property
    def identity(self):
        Moody.asked += 1
        return "renamed", str(Moody.asked)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (TooLong, "vectors are unit vectors"),
        (Blind, "pictures differ"),
        (SeesItsNeighbours, "the batch does not matter"),
        (NotFinite, "pictures need not be square"),
        (Moody, "the batch does not matter"),
        (Renamed, "answers repeat"),
    ],
)
def test_a_broken_model_is_found(broken, rule):
    with pytest.raises(ConformanceFailure, match=rule):
        check_image_text_model(broken(), PICTURES, TEXTS)
