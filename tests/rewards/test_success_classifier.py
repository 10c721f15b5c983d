"""A classifier of success: what it learns from, that its probabilities and its threshold mean what they say, and its guard."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import axes, make_episode, make_spec
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.rewards.audit.evidence import reads_pictures
from robo_rl.rewards.success.classifier import ClassifierConfig, SuccessNetwork, _shifted, fit
from robo_rl.rewards.success.classifier_reward import ClassifierReward, save
from robo_rl.rewards.success.examples import (
    Guard,
    examples_of,
    measured,
    moments_of,
    observation_of,
    shows_success,
    split,
    threshold_for,
)
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.types import Episode

LIGHT, PICTURE = ArraySpec("light", (1,)), ArraySpec("camera_front", (8, 8, 3), "uint8", role="image")
ACTION = axes("a")
SPEC = make_spec("test/Light", LIGHT, PICTURE, action=ACTION)
NUMBERS = make_spec("test/Numbers", LIGHT, ArraySpec("height", (2,)), action=ACTION)
SMALL = ClassifierConfig(image_size=8, hidden=16, updates=80, batch_size=32, shift=1, lr=3e-3)


def episode(seed: int, spec: EnvironmentSpec = SPEC, steps: int = 8) -> Episode:
    """Even seeds succeed: the light gets brighter, and is full at the end. The height follows it in successes."""
    random, success = np.random.default_rng(seed), seed % 2 == 0
    light = np.linspace(0.1, 0.6, steps + 1) + random.normal(0, 0.03, steps + 1)
    light[-1] = 0.95 if success else light[-1]
    pictures = np.rint(200 * light + random.normal(0, 3, (8, 8, 3, steps + 1))).clip(0, 255).astype(np.uint8)
    everything = {
        "light": light[:, None].astype(np.float32),
        "camera_front": np.moveaxis(pictures, -1, 0).copy(),
        "height": np.stack([np.zeros(steps + 1), light], axis=1).astype(np.float32),
    }
    seen = {name: everything[name] for name in spec.observation}
    return make_episode(seen, terminated=success, success=success, seed=seed, spec_fingerprint=spec.fingerprint)


def fitted(folder, spec: EnvironmentSpec = SPEC, config: ClassifierConfig = SMALL):
    config = replace(config, camera=observation_of(spec, config.camera))
    episodes = [episode(seed, spec) for seed in range(60)]
    taught, held = split([each.success for each in episodes], config)
    network = fit(*examples_of(spec, [episodes[i] for i in taught], config.camera, config), config)
    guard = Guard.parse(config.guard) if config.guard else None
    found = measured(network, spec, [episodes[i] for i in held], config.camera, guard, config)
    save(folder, network, config, spec, found, {})
    return found


# ---------------------------------------------------------------------------------------------- examples
def test_what_shows_success():
    won, lost = episode(0, steps=4), episode(1, steps=4)
    nan = np.nan
    np.testing.assert_array_equal(shows_success(won, SMALL), [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(shows_success(won, replace(SMALL, last=2, margin=1)), [0, 0, nan, 1, 1])
    np.testing.assert_array_equal(shows_success(won, replace(SMALL, last=9)), [0, 1, 1, 1, 1])  # the start is no success
    np.testing.assert_array_equal(shows_success(lost, SMALL), np.zeros(5))


def test_a_choice_is_learned_from_and_the_share_is_that_of_all():
    config = replace(SMALL, frames=3)
    examples = examples_of(SPEC, [episode(0), episode(1)], "camera_front", config)
    assert examples.successes.tolist() == [True, False, False, False, False, False, False]
    assert examples.share == pytest.approx(1 / 18)
    np.testing.assert_array_equal(examples.moments[0], episode(0).observations["camera_front"][-1])
    np.testing.assert_array_equal(examples.moments[1:4], episode(0).observations["camera_front"][[0, 3, 7]])


def test_moments_that_are_not_known_are_left_out():
    spoilt = episode(0, NUMBERS)
    spoilt.observations["height"][8, 1] = np.nan
    moments, valid = moments_of(NUMBERS, spoilt, "")
    assert moments.shape == (9, 3) and valid.tolist() == [True] * 8 + [False] and np.isfinite(moments).all()
    assert not examples_of(NUMBERS, [spoilt, episode(2, NUMBERS)], "", SMALL).successes[:8].any()


def test_episodes_are_split_and_not_moments():
    successes = [seed % 3 == 0 for seed in range(90)]
    taught, held = split(successes, SMALL)
    assert not {*taught} & {*held} and sorted(taught + held) == [*range(90)]
    assert sum(successes[i] for i in held) == 9 and len(held) == 27
    assert split(successes, replace(SMALL, seed=1))[1] != held
    for few in ([True] * 50 + [False] * 9, [None] * 60):
        with pytest.raises(InvalidSetting, match="too few episodes"):
            split(few, SMALL)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40), st.sampled_from([0.0, 0.01, 0.1, 0.5]))
def test_the_threshold_is_the_least_that_few_failures_reach(highest, rate):
    highest = np.array(highest, np.float32).astype(np.float64)
    threshold = threshold_for(highest, rate)
    assert np.mean(highest >= threshold) <= rate
    assert np.mean(highest >= np.nextafter(np.float32(threshold), np.float32(-1))) > rate


# ---------------------------------------------------------------------------------------------- learning
@pytest.mark.slow
def test_success_is_seen_in_pictures(tmp_path):
    found = fitted(tmp_path / "fit")
    assert found.area.estimate == 1 and found.detected.estimate == 1 and found.false_positives.estimate == 0
    assert found.error < 0.05 and 0 < found.threshold < 1 and (found.successes, found.failures) == (9, 9)
    reward = ClassifierReward(folder=str(tmp_path / "fit"))
    won, lost = (reward.label(episode(seed)).values for seed in (100, 101))
    assert won[-1] > 0.9 and won[:4].max() < 0.1 and lost.max() < 0.5
    sure = ClassifierReward(folder=str(tmp_path / "fit"), answer="success")
    assert sure.label(episode(100)).values.tolist() == [0] * 7 + [1] and not sure.label(episode(101)).values.any()
    pictures = episode(100).observations["camera_front"]
    scores = reward.score(pictures, pictures, None)
    np.testing.assert_array_equal(scores.values[1:], won)
    assert reward.identity != sure.identity and not reward.reads_words
    delta = ClassifierReward(folder=str(tmp_path / "fit"), mode="delta").label(episode(100))
    np.testing.assert_allclose(delta.values, np.diff(scores.values), atol=1e-6)
    with pytest.raises(InvalidSetting, match="is not empty"):
        save(tmp_path / "fit", SuccessNetwork((8, 8, 3), 16, 8), SMALL, SPEC, found, {})
    with pytest.raises(SpecMismatch, match="fit a classifier to this"):
        reward.label(episode(0, NUMBERS))


def test_success_from_numbers_counts_only_within_guard(tmp_path):
    plain, config = fitted(tmp_path / "plain", NUMBERS), replace(SMALL, guard="height[1]=0.3:0.9")
    guarded = fitted(tmp_path / "guarded", NUMBERS, config)
    assert plain.detected.estimate == 1 and guarded.detected.estimate == 0  # the light is brighter than the guard allows
    reward = ClassifierReward(folder=str(tmp_path / "guarded"))
    free = ClassifierReward(folder=str(tmp_path / "guarded"), guarded=False)
    won = episode(100, NUMBERS)
    assert reward.label(won).values[-1] == 0 and free.label(won).values[-1] > 0.3 and reward.identity != free.identity
    assert not reads_pictures(reward, episode(0))  # though there are some: an audit blackens nothing
    won.observations["height"][4, 1] = np.nan
    assert reward.label(won).valid.tolist() == [True, True, True, False, True, True, True, True]
    for each in (reward, free):
        with pytest.raises(InvalidSetting, match="looks at float observations, not at pictures"):
            each.score(np.zeros((1, 8, 8, 3), np.uint8), np.zeros((1, 8, 8, 3), np.uint8), None)


def test_pictures_alone_do_not_show_whether_a_guard_holds(tmp_path):
    fitted(tmp_path / "fit", config=replace(SMALL, guard="light=0.5:", updates=1))
    pictures = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(InvalidSetting, match=r"reward.settings.guarded false"):
        ClassifierReward(folder=str(tmp_path / "fit")).score(pictures, pictures, None)
    assert reads_pictures(ClassifierReward(folder=str(tmp_path / "fit")), episode(0))
    assert ClassifierReward(folder=str(tmp_path / "fit")).eye == "camera_front"  # online, too, nobody need name it
    assert len(ClassifierReward(folder=str(tmp_path / "fit"), guarded=False).score(pictures, pictures, None).values) == 2
    with pytest.raises(InvalidSetting, match="Which fitted reward"):
        ClassifierReward()


def test_rare_success_has_small_probability_without_signal():
    """Half of each batch are successes; without the correction the answer would be one half."""
    random = np.random.default_rng(0)
    network = fit(random.normal(size=(400, 2)).astype(np.float32), np.arange(400) < 100, 0.02, replace(SMALL, weight_decay=1.0))
    found = network.probabilities(random.normal(size=(1000, 2)).astype(np.float32))
    assert 0.005 < found.mean() < 0.06


def test_same_seed_repeats_without_torch_global_generator():
    examples = examples_of(SPEC, [episode(0), episode(1)], "camera_front", SMALL)
    before = torch.get_rng_state()
    one, same, other = (fit(*examples, replace(SMALL, updates=2, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_pictures_are_brought_to_size_and_moved():
    network = SuccessNetwork((16, 12, 3), 4, 8)
    assert network.prepared(np.zeros((2, 16, 12, 3), np.uint8)).shape == (2, 8, 8, 3)
    assert network.probabilities(np.zeros((0, 16, 12, 3), np.uint8)).shape == (0,)
    picture = torch.arange(9).reshape(1, 3, 3, 1)
    assert _shifted(picture, 1, -1)[0, ..., 0].tolist() == [[1, 2, 2], [1, 2, 2], [4, 5, 5]]


# ---------------------------------------------------------------------------------------------- guard, settings
def test_a_guard_by_hand():
    observations = {"opening": np.array([[0.0], [0.03], [np.nan], [0.09]]), "place": np.arange(12.0).reshape(4, 3)}
    holds, known = Guard.parse("opening=0.02:0.06").holds(observations)
    assert holds.tolist() == [False, True, False, False] and known.tolist() == [True, True, False, True]
    assert Guard.parse("place[2]=5:").holds(observations)[0].tolist() == [False, True, True, True]
    assert Guard.parse("place[1] = :4").holds(observations)[0].tolist() == [True, True, False, False]
    with pytest.raises(UnknownName, match="did you mean 'opening'"):
        Guard.parse("openin=0:1").holds(observations)
    with pytest.raises(InvalidSetting, match="has no element 3"):
        Guard.parse("place[3]=0:1").holds(observations)


@pytest.mark.parametrize("text", ["opening", "opening=1", "opening=a:b", "opening=2:1", "=0:1", "opening=nan:1"])
def test_a_guard_that_cannot_be_meant_is_refused(text):
    with pytest.raises(InvalidSetting, match="A guard"):
        Guard.parse(text)


def test_what_is_looked_at():
    assert [observation_of(SPEC, name) for name in ("", "front", "camera_front", "none")] == ["camera_front"] * 3 + [""]
    assert observation_of(NUMBERS, "") == ""
    with pytest.raises(UnknownName, match="camera"):
        observation_of(SPEC, "frnt")
    with pytest.raises(InvalidSetting, match="no float observations"):
        observation_of(make_spec("x", PICTURE, action=ACTION), "none")


@pytest.mark.parametrize("wrong", [{"last": 0}, {"false_positives": 1.0}, {"held_out": 0.0}, {"lr": 0.0}, {"margin": -1}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSetting, match=f"'{next(iter(wrong))}' is out of range"):
        ClassifierConfig(**wrong)


def test_where_the_task_ended_the_potential_is_taken_back(tmp_path):
    fitted(tmp_path / "fit")
    level, potential = (ClassifierReward(folder=str(tmp_path / "fit"), mode=mode) for mode in ("level", "potential"))
    ended = replace(episode(100), terminated=True, truncated=False)
    assert potential.label(ended).values[-1] == -level.label(ended).values[-2]
    cut = replace(episode(100), terminated=False, truncated=True)
    assert potential.label(cut).values[-1] > potential.label(ended).values[-1]
