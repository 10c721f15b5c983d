"""VLM-RM: the equations, and what is refused."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from robo_rl.errors import InvalidSetting
from robo_rl.rewards.images import image_text
from robo_rl.rewards.images.vlm_rm import VLMRM, regularised

DIMENSIONS = 6
WORDS = ("kneels", "is on its knees", "a robot", "stands")
RNG = np.random.default_rng(0)


def units(count: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSIONS))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


SENTENCES = dict(zip(WORDS, units(4, 1), strict=True))


@dataclass(frozen=True)
class Invented:
    """Pictures lie where their first numbers say, sentences where a table says."""

    identity = ("invented", "1")
    scale = 1.0
    asked = 0

    def embed_pictures(self, pictures):
        vectors = pictures.reshape(len(pictures), -1)[:, :DIMENSIONS].astype(np.float32) - 127
        return self.scale * vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def embed_texts(self, texts):
        Invented.asked += 1
        return np.stack([SENTENCES[text] for text in texts]).astype(np.float32)


@pytest.fixture(autouse=True)
def invented(monkeypatch):
    monkeypatch.setattr(image_text, "load", lambda group, name: {"invented": Invented}[name])


def reward(**settings) -> VLMRM:
    return VLMRM(**({"model": "invented", "goal": ("kneels",), "baseline": ("a robot",)} | settings))


def pictures(count: int = 8) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (count, 4, 5, 3), np.uint8)


def test_at_0_it_is_the_cosine():
    found = reward(alpha=0.0, baseline=()).score(pictures(), pictures(), None)
    cosine = Invented().embed_pictures(pictures()) @ SENTENCES["kneels"]
    np.testing.assert_allclose(found.values, cosine, atol=1e-6)
    assert found.valid.all() and found.values.dtype == np.float32


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_the_closed_form_is_that_with_the_matrix(alpha):
    s, (g, b) = units(20, 3), units(2, 4)
    d = g - b
    matrix = alpha * np.outer(d, d) / (d @ d) + (1 - alpha) * np.eye(DIMENSIONS)
    expected = 1 - 0.5 * np.square((s - g) @ matrix).sum(axis=1)
    np.testing.assert_allclose(regularised(s, g, d, alpha), expected, atol=1e-12)
    assert (regularised(s, g, d, alpha) <= 1).all()
    np.testing.assert_allclose(regularised(g[None], g, d, alpha), 1)


def test_at_1_only_the_direction_from_baseline_to_goal_counts():
    s, (g, b) = units(20, 3), units(2, 4)
    d = g - b
    aside = RNG.normal(size=s.shape)
    aside -= np.outer(aside @ d, d) / (d @ d)
    np.testing.assert_allclose(regularised(s + aside, g, d, 1.0), regularised(s, g, d, 1.0), atol=1e-9)
    assert not np.allclose(regularised(s + aside, g, d, 0.5), regularised(s, g, d, 0.5))


def test_the_length_of_a_pictures_embedding_does_not_count(monkeypatch):
    before = reward().score(pictures(), pictures(), None).values
    monkeypatch.setattr(Invented, "scale", 7.0)
    np.testing.assert_allclose(reward().score(pictures(), pictures(), None).values, before, atol=1e-6)


def test_several_sentences_are_a_normalised_mean():
    found = reward(goal=("kneels", "is on its knees"), alpha=0.0).score(pictures(), pictures(), None)
    mean = SENTENCES["kneels"] + SENTENCES["is on its knees"]
    cosine = Invented().embed_pictures(pictures()) @ (mean / np.linalg.norm(mean))
    np.testing.assert_allclose(found.values, cosine, atol=1e-6)


def test_the_instruction_is_the_goal_where_none_is_set():
    told = reward(goal=()).score(pictures(), pictures(), "kneels").values
    np.testing.assert_array_equal(told, reward().score(pictures(), pictures(), "stands").values)
    with pytest.raises(InvalidSetting, match="Nothing says what shall be done"):
        reward(goal=()).score(pictures(), pictures(), None)


def test_words_are_embedded_once():
    model, before = reward(), Invented.asked
    for _ in range(3):
        model.score(pictures(), pictures(), None)
    assert Invented.asked == before + 2


def test_a_goal_like_the_baseline_is_refused():
    with pytest.raises(InvalidSetting, match="does not tell goal from baseline"):
        reward(baseline=("kneels",)).score(pictures(), pictures(), None)
    reward(baseline=("kneels",), alpha=0.0).score(pictures(), pictures(), None)


def test_impossible_settings_are_refused():
    with pytest.raises(InvalidSetting, match=r"'alpha' is out of range.\n.*1.5\n.*0 to 1"):
        reward(alpha=1.5)
    with pytest.raises(InvalidSetting, match="'baseline' is out of range"):
        reward(baseline=())


def test_numbers_that_are_none_are_missing(monkeypatch):
    whole = Invented.embed_pictures

    def broken(self, pictures):
        found = whole(self, pictures)
        found[1], found[2] = np.nan, 0
        return found

    monkeypatch.setattr(Invented, "embed_pictures", broken)
    found = reward().score(pictures(4), pictures(4), None)
    assert found.valid.tolist() == [True, False, False, True]
    assert np.isfinite(found.values).all()


def test_whatever_labels_follow_from_is_part_of_the_identity():
    identities = {reward().identity, reward(alpha=0.4).identity, reward(baseline=("stands",)).identity}
    identities |= {reward(camera="wrist").identity, reward(mode="delta").identity}
    assert len(identities) == 5
    assert reward().identity[0] == "vlm-rm with invented"
    assert reward().prompt_hash != reward(goal=("stands",)).prompt_hash
    assert replace(reward(), alpha=0.4).identity == reward(alpha=0.4).identity
