"""Measures of an embedded model on pictures whose truth is known.

Shapes: N pictures, I instructions, P pairs of a picture and an instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import spearmanr
from torch import Tensor

from robo_rl.environments.captioned_pictures import CaptionedPictures
from robo_rl.rewards.embedded.model import EmbeddedModel
from robo_rl.rewards.score_statistics import roc_area
from robo_rl.types import Array

CLOSE = (0.02, 0.08)
"""Range of the difference in true progress of a close pair: one or two steps of an arm task."""
PAIRS = 20_000
FEWEST = 10
"""Smallest number of pictures of which a sentence is true, and of which it is false, to measure the sentence."""
UNTRAINED = 5
"""Number of untrained models that are measured as a control."""


@dataclass(frozen=True)
class Measures:
    """Accuracy of an embedded model; an "order" is a rank correlation (Spearman) with the true progress."""

    hand_error: float
    """[cm] median error of the hand's position if it is visible"""
    thing_error: float
    """[cm] median error of the positions of all other visible objects"""
    progress_order: float
    """Rank correlation of the estimated with the true progress."""
    similarity_order: float
    """Rank correlation of the cosine between picture and sentence."""
    preference: float
    """Share of pairs of pictures that are in the order of the true progress."""
    close_preference: float
    """Share of pairs of pictures in the order of the true progress, among pairs whose progress hardly differs."""
    completion: float
    """Area under the ROC curve of the estimated completion."""
    wrong_colour: float
    """Mean progress at success for sentences with a colour that is not in the picture."""
    sentences: Mapping[str, float]
    """Sentence -> area under the ROC curve of its cosine with pictures: its quality as a goal."""

    def lines(self) -> Iterator[str]:
        """Yield a line of text for each measure."""
        yield f"error of the hand's position, median           {self.hand_error:6.2f} cm"
        yield f"error of the things' positions, median         {self.thing_error:6.2f} cm"
        yield f"rank correlation of progress with the truth    {self.progress_order:6.3f}"
        yield f"rank correlation of similarity with the truth  {self.similarity_order:6.3f}"
        yield f"pairs of pictures in the right order           {self.preference:6.1%}"
        yield f"close pairs in the right order                 {self.close_preference:6.1%}"
        yield f"area under the ROC curve of completion         {self.completion:6.3f}"
        yield f"mean progress at success, wrong colour         {self.wrong_colour:6.3f}"
        yield "area under the ROC curve of the similarity with a sentence:"
        yield from (f"  {area:.3f} {words!r}" for words, area in self.sentences.items())


def measure(model: EmbeddedModel, data: CaptionedPictures, described: Tensor | None = None) -> Measures:
    """Return the measures of a model on captioned pictures, for all instructions.

    described: (N, F) descriptions of the pictures, if they are already known.
    """
    described = model.describe(data.pictures) if described is None else described
    progress, completion, similarity = _answers(model, data, described)
    errors = 100 * np.linalg.norm(model.positions(described) - data.positions, axis=-1)
    there = data.progress > 0
    truth, said = data.progress[there], progress[there]
    one, other = np.random.default_rng(0).integers(len(truth), size=(2, PAIRS))
    right: npt.NDArray[np.bool_] = np.equal(said[one] > said[other], truth[one] > truth[other])
    gap = np.abs(truth[one] - truth[other])
    succeeded = data.complete.any(1, keepdims=True)
    return Measures(
        hand_error=_median(errors[:, :1][data.seen[:, :1]]),
        thing_error=_median(errors[:, 1:][data.seen[:, 1:]]),
        progress_order=_order(said, truth),
        similarity_order=_order(similarity[there], truth),
        preference=_mean(right[gap > 0]),
        close_preference=_mean(right[(gap > CLOSE[0]) & (gap < CLOSE[1])]),
        completion=roc_area(completion[there], data.complete[there]),
        wrong_colour=_mean(progress[succeeded & ~there]),
        sentences=sentence_areas(model, data, described),
    )


def untrained_orders(model: EmbeddedModel, data: CaptionedPictures) -> list[float]:
    """Return the rank correlations of untrained models, which must be about zero."""
    orders = []
    with torch.random.fork_rng(devices=()):
        for seed in range(UNTRAINED):
            torch.manual_seed(seed)
            orders.append(measure(EmbeddedModel(model.origin), data).progress_order)
    return orders


def _answers(model: EmbeddedModel, data: CaptionedPictures, described: Tensor) -> tuple[Array, Array, Array]:
    """Return progress, completion and similarity, each (N, I), for the first wording of each instruction."""
    firsts = described[torch.from_numpy(data.firsts)]
    sentences = [wordings[0] for wordings in data.instructions]
    progress = np.stack([model.progress(firsts, described, words) for words in sentences], 1)
    completion = np.stack([model.completion(firsts, described, words) for words in sentences], 1)
    return progress, completion, model.embed_described(described) @ model.embed_texts(sentences).T


def sentence_areas(model: EmbeddedModel, data: CaptionedPictures, described: Tensor) -> dict[str, float]:
    """Return sentence -> area under its ROC curve, the largest first."""
    said = model.embed_described(described) @ model.embed_texts(list(data.captions)).T
    true = data.truth.sum(0)
    often = [number for number in range(len(data.captions)) if FEWEST <= true[number] <= len(data) - FEWEST]
    areas = {data.captions[number]: roc_area(said[:, number], data.truth[:, number]) for number in often}
    return dict(sorted(areas.items(), key=lambda item: -item[1]))


def _order(said: Array, truth: Array) -> float:
    found = spearmanr(said, truth).statistic
    return float(found) if np.isfinite(found) else 0.0


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")
