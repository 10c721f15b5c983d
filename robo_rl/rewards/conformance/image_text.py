"""Checks that image-text models must pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np

from robo_rl.errors import SpecMismatch
from robo_rl.rewards.conformance.rule import require_rule
from robo_rl.rewards.images.image_text import ImageTextModel
from robo_rl.rewards.images.picture_reward import Pictures

ImageTextCheck = Callable[[ImageTextModel, Pictures, Sequence[str]], None]
CLOSE = 1e-4
"""Largest difference of a number between batches, which add float32 values in different order."""


def check_image_text_model(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Run all checks; raise ConformanceFailure if one fails.

    pictures: eight or more different ones; texts: two or more different ones.
    """
    for check in IMAGE_TEXT_CHECKS:
        check(model, pictures.copy(), list(texts))


def vectors_are_unit_vectors(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Check that vectors are float32 of length 1, one for each input, of the same size for pictures and texts.

    Inputs may also be empty.
    """
    found = [model.embed_pictures(pictures), model.embed_pictures(pictures[:0])]
    found += [model.embed_texts(texts), model.embed_texts([])]
    size = found[0].shape[-1]
    wanted = [((count, size), np.dtype(np.float32)) for count in (len(pictures), 0, len(texts), 0)]
    kinds = [(vectors.shape, vectors.dtype) for vectors in found]
    require_rule(kinds == wanted, model, "vectors are unit vectors", "the arrays differ", kinds, wanted)
    lengths = np.linalg.norm(np.concatenate(found).astype(np.float64), axis=1)
    require_rule(bool((abs(lengths - 1) < CLOSE).all()), model, "vectors are unit vectors", "a length is not 1", lengths, 1)


def inputs_are_told_apart(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Check that different pictures have different vectors, and so do different texts; fails if weights were not loaded."""
    for kind, vectors in (("pictures", model.embed_pictures(pictures)), ("texts", model.embed_texts(texts))):
        distance = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1) + 2 * np.eye(len(vectors))
        failure = "two lie in one place"
        require_rule(bool(distance.min() > CLOSE), model, f"{kind} differ", failure, distance.min(), f"above {CLOSE}")


def the_batch_does_not_matter(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Check that a picture has the same vector alone, in batches of seven and in another order, and a text alone."""
    whole = model.embed_pictures(pictures)
    order = np.arange(len(pictures))[::-1]
    again = {
        "one by one": np.concatenate([model.embed_pictures(picture[None]) for picture in pictures]),
        "by seven": np.concatenate([model.embed_pictures(pictures[at : at + 7]) for at in range(0, len(pictures), 7)]),
        "in another order": model.embed_pictures(pictures[order])[order],
        "texts one by one": np.concatenate([model.embed_texts([text]) for text in texts]),
    }
    for way, vectors in again.items():
        expected = model.embed_texts(texts) if way.startswith("texts") else whole
        difference = float(abs(vectors - expected).max())
        require_rule(
            difference < CLOSE, model, "the batch does not matter", f"other vectors {way}", difference, f"below {CLOSE}"
        )


def pictures_need_not_be_square(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Check that wide and high pictures have finite vectors, or raise SpecMismatch if a model is for one camera only."""
    half = pictures.shape[1] // 2
    for name, cut in (("wide", pictures[:, :half]), ("high", pictures[:, :, :half])):
        try:
            finite = bool(np.isfinite(model.embed_pictures(np.ascontiguousarray(cut))).all())
        except SpecMismatch:
            continue
        require_rule(finite, model, "pictures need not be square", f"{name} ones are not embedded")


def answers_repeat(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Check that equal inputs give exactly equal vectors, also from a copy of the model.

    Identity and pictures must not change.
    """
    identity, before = model.identity, pictures.copy()
    first = model.embed_pictures(pictures).tobytes(), model.embed_texts(texts).tobytes()
    for again in (model, copy.deepcopy(model)):
        same = first == (again.embed_pictures(pictures).tobytes(), again.embed_texts(texts).tobytes())
        require_rule(same, model, "answers repeat", "the same input got another output")
        require_rule(again.identity == identity, model, "answers repeat", "the identity changed", again.identity, identity)
    require_rule(bool((before == pictures).all()), model, "answers repeat", "the pictures were written to")


IMAGE_TEXT_CHECKS: Sequence[ImageTextCheck] = (
    vectors_are_unit_vectors,
    inputs_are_told_apart,
    the_batch_does_not_matter,
    pictures_need_not_be_square,
    answers_repeat,
)
