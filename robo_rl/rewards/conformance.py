"""Checks that every reward model and every image-text model must pass: ours and third parties'.

from robo_rl.rewards.conformance import check_image_text_model, check_reward

check_reward(MyReward(), episodes)                      # raises ConformanceFailure
check_image_text_model(MyModel(), pictures, texts)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from robo_rl.errors import ConformanceFailure, SpecMismatch
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.image_text import ImageTextModel
from robo_rl.rewards.pictures import Pictures
from robo_rl.types import Episode, RewardLabels

RewardCheck = Callable[[RewardModel, Sequence[Episode]], None]


def check_reward(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Runs every check on episodes that the model is made for, two or more; raises ConformanceFailure."""
    for check in REWARD_CHECKS:
        check(model, copy.deepcopy(episodes))


def labels_fit_the_episode(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """One float32 value a step, also of an episode without steps."""
    for episode in [*episodes, _without_steps(episodes[0])]:
        labels, steps = model.label(episode), len(episode)
        found, wanted = (len(labels), labels.values.dtype), (steps, np.dtype(np.float32))
        _require(found == wanted, model, "labels fit the episode", "the arrays differ", found, wanted)


def labels_say_whose_they_are(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Model and hash are those of `identity`, which does not change."""
    before = model.identity
    for episode in episodes:
        labels = model.label(episode)
        told = labels.model, labels.weights_hash
        _require(told == before == model.identity, model, "labels say whose they are", "they say something else", told, before)


def labels_repeat(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """The same episode has the same labels, whatever was labelled in between, and another copy of the model agrees."""
    first = [model.label(episode) for episode in episodes]
    for again in (model, copy.deepcopy(model)):
        for labels, episode in reversed([*zip(first, episodes, strict=True)]):
            same = _are_equal(labels, again.label(episode))
            _require(same, model, "labels repeat", "the same episode got other labels", episode.seed)


def episodes_stay_as_they_are(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Nothing is written into what is labelled."""
    for episode in episodes:
        before = copy.deepcopy(episode)
        model.label(episode)
        arrays = {"actions": episode.actions, "rewards": episode.rewards, **episode.observations}
        kept = {"actions": before.actions, "rewards": before.rewards, **before.observations}
        changed = [name for name, array in arrays.items() if array.tobytes() != kept[name].tobytes()]
        _require(not changed, model, "episodes stay as they are", "an array was written to", changed)


REWARD_CHECKS: Sequence[RewardCheck] = (
    labels_fit_the_episode,
    labels_say_whose_they_are,
    labels_repeat,
    episodes_stay_as_they_are,
)


def require_rule(holds: bool, name: str, rule: str, what: str, got: object = None, allowed: object = None) -> None:
    """Raises ConformanceFailure of the model of that name unless the rule holds."""
    if not holds:
        raise ConformanceFailure(name, rule, what, got=got, allowed=allowed)


def _require(holds: bool, model: object, rule: str, what: str, got: object = None, allowed: object = None) -> None:
    require_rule(holds, type(model).__name__, rule, what, got, allowed)


def _are_equal(one: RewardLabels, other: RewardLabels) -> bool:
    return all(first.tobytes() == second.tobytes() for first, second in ((one.values, other.values), (one.valid, other.valid)))


def _without_steps(episode: Episode) -> Episode:
    empty = {name: getattr(episode, name)[:0] for name in ("actions", "policy_actions", "rewards", "sources")}
    first = {name: array[:1] for name, array in episode.observations.items()}
    terms = {name: array[:0] for name, array in episode.reward_terms.items()}
    costs = None if episode.costs is None else episode.costs[:0]
    return replace(episode, observations=first, reward_terms=terms, costs=costs, timestamps=episode.timestamps[:1], **empty)


ImageTextCheck = Callable[[ImageTextModel, Pictures, Sequence[str]], None]
Vectors = npt.NDArray[np.float32]
CLOSE = 1e-4
"""Most by which a number may differ between batches: float32 is added up in another order there."""


def check_image_text_model(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Runs every check on eight or more different pictures and two or more different texts; raises ConformanceFailure."""
    for check in IMAGE_TEXT_CHECKS:
        check(model, pictures.copy(), list(texts))


def vectors_are_unit_vectors(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Float32 of length 1, as many as were asked for, in one space; also of nothing."""
    found = [model.embed_pictures(pictures), model.embed_pictures(pictures[:0])]
    found += [model.embed_texts(texts), model.embed_texts([])]
    size = found[0].shape[-1]
    wanted = [((count, size), np.dtype(np.float32)) for count in (len(pictures), 0, len(texts), 0)]
    kinds = [(vectors.shape, vectors.dtype) for vectors in found]
    _require(kinds == wanted, model, "vectors are unit vectors", "the arrays differ", kinds, wanted)
    lengths = np.linalg.norm(np.concatenate(found).astype(np.float64), axis=1)
    _require(bool((abs(lengths - 1) < CLOSE).all()), model, "vectors are unit vectors", "a length is not 1", lengths, 1)


def inputs_are_told_apart(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Different pictures lie in different places, and so do different texts: weights that were not loaded show here."""
    for kind, vectors in (("pictures", model.embed_pictures(pictures)), ("texts", model.embed_texts(texts))):
        distance = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1) + 2 * np.eye(len(vectors))
        told = "two lie in one place"
        _require(bool(distance.min() > CLOSE), model, f"{kind} are told apart", told, distance.min(), f"above {CLOSE}")


def the_batch_does_not_matter(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """A picture has the same vector alone, among seven, and in another order; a text too."""
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
        _require(difference < CLOSE, model, "the batch does not matter", f"other vectors {way}", difference, f"below {CLOSE}")


def pictures_need_not_be_square(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """Wide and high pictures have finite vectors, too, or are refused in words by a model that is made for one camera."""
    half = pictures.shape[1] // 2
    for name, cut in (("wide", pictures[:, :half]), ("high", pictures[:, :, :half])):
        try:
            finite = bool(np.isfinite(model.embed_pictures(np.ascontiguousarray(cut))).all())
        except SpecMismatch:
            continue
        _require(finite, model, "pictures need not be square", f"{name} ones are not embedded")


def answers_repeat(model: ImageTextModel, pictures: Pictures, texts: Sequence[str]) -> None:
    """The same input has the same bytes as output, another copy of the model agrees, and its identity does not change."""
    identity, before = model.identity, pictures.copy()
    first = model.embed_pictures(pictures).tobytes(), model.embed_texts(texts).tobytes()
    for again in (model, copy.deepcopy(model)):
        same = first == (again.embed_pictures(pictures).tobytes(), again.embed_texts(texts).tobytes())
        _require(same, model, "answers repeat", "the same input got another output")
        _require(again.identity == identity, model, "answers repeat", "the identity changed", again.identity, identity)
    _require(bool((before == pictures).all()), model, "answers repeat", "the pictures were written to")


IMAGE_TEXT_CHECKS: Sequence[ImageTextCheck] = (
    vectors_are_unit_vectors,
    inputs_are_told_apart,
    the_batch_does_not_matter,
    pictures_need_not_be_square,
    answers_repeat,
)
