"""Every image-text model keeps every rule, and each rule can fail."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.discovery import known
from robo_rl.errors import ConformanceFailure, UnknownName
from robo_rl.rewards.colours import Colours
from robo_rl.rewards.image_text_conformance import IMAGE_TEXT_CHECKS, check_image_text_model

MODELS = {
    "colours": lambda _: Colours(),
}
ELSEWHERE = {"transformers", "open-clip"}
"""Need an extra; their own tests in tests/rewards run the checks."""
PICTURES = (
    np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), np.uint8) // np.arange(1, 10, dtype=np.uint8)[:, None, None, None]
)
TEXTS = ("red", "green grey", "blue")


def test_no_model_is_left_out():
    assert {*known("image_text_models")} == {*MODELS} | ELSEWHERE


@pytest.mark.parametrize("check", IMAGE_TEXT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_model_keeps_the_rule(name, check, tmp_path):
    check(MODELS[name](tmp_path), PICTURES, TEXTS)


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
        (Blind, "pictures are told apart"),
        (SeesItsNeighbours, "the batch does not matter"),
        (NotFinite, "pictures need not be square"),
        (Moody, "the batch does not matter"),
        (Renamed, "answers repeat"),
    ],
)
def test_a_broken_model_is_found(broken, rule):
    with pytest.raises(ConformanceFailure, match=rule):
        check_image_text_model(broken(), PICTURES, TEXTS)
