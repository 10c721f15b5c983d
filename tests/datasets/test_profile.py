"""What `robo-rl data stats` computes, beside what numpy says of all episodes at once."""

import json
from itertools import pairwise

import numpy as np
import pytest

from factories import fill
from robo_datasets.profile import DRAWN, coverage, profile
from robo_rl.errors import DatasetError


@pytest.fixture
def recorded(dataset, make_episode):
    sources = ("random", "scripted", "scripted")
    facts = [{"metadata": {"source": source}, "terminated": seed == 1} for seed, source in enumerate(sources)]
    return fill(dataset, (make_episode(seed, steps, **facts[seed]) for seed, steps in enumerate((300, 2, 40))))


def test_ranges_means_and_spreads_are_those_of_all_values(recorded):
    found = profile(recorded)
    episodes = list(recorded)
    for name, facts in found["arrays"].items():
        group, _, key = name.partition("/")
        parts = [getattr(episode, group)[key] if key else getattr(episode, group) for episode in episodes]
        values = np.concatenate(parts).astype(np.float64)
        assert facts["values"] == values.size
        assert (facts["min"], facts["max"]) == (values.min(), values.max())
        assert (facts["mean"], facts["std"]) == pytest.approx((values.mean(), values.std()), rel=1e-9)
        if key == "joint_position":
            np.testing.assert_allclose(facts["dimensions"]["mean"], values.mean(0), rtol=1e-9)
            np.testing.assert_allclose(facts["dimensions"]["std"], values.std(0), rtol=1e-9)
    assert found["terminated"] == 1 and found["truncated"] == 2
    assert sum(found["acted"].values()) == found["steps"] == 342
    assert sum(found["returns"]["histogram"]["counts"]) == found["episodes"] == 3
    json.dumps(found, allow_nan=False)


def test_values_far_from_zero_keep_their_spread(dataset, make_episode):
    positions = 1e6 + np.random.default_rng(0).normal(size=(101, 3)).astype(np.float32)
    camera = np.zeros((101, 8, 6, 3), np.uint8)
    with dataset.writer() as writer:
        writer.add(make_episode(0, 100, observations={"joint_position": positions, "camera_wrist": camera}))
    facts = profile(dataset)["arrays"]["observations/joint_position"]
    assert facts["dimensions"]["std"] == pytest.approx(positions.astype(np.float64).std(0), rel=1e-6)


def test_faults_saturation_and_constants_are_counted(dataset, make_episode):
    positions = np.zeros((5, 3), np.float32)
    positions[:, 0] = [np.nan, 1, 2, np.inf, 3]
    actions = np.array([[1, 0.5], [-1, 0.5], [0.3, 0.5], [1, 0.5]], np.float32)
    camera = np.zeros((5, 8, 6, 3), np.uint8)
    with dataset.writer() as writer:
        writer.add(make_episode(0, 4, observations={"joint_position": positions, "camera_wrist": camera}, actions=actions))
    found = profile(dataset)["arrays"]
    observed = found["observations/joint_position"]
    assert (observed["nan"], observed["infinite"], observed["constant"]) == (1, 1, [1, 2])
    assert (observed["min"], observed["max"], observed["dimensions"]["mean"][0]) == (0, 3, 2)
    assert found["actions"]["saturated"] == 3 / 8 and found["actions"]["constant"] == [1]
    assert "saturated" not in found["rewards"]


def test_coverage_is_told_for_each_actor_and_leaves_pictures_out(recorded):
    found = profile(recorded)["coverage"]
    assert {actor: facts["pairs"] for actor, facts in found.items()} == {"random": 300, "scripted": 42}
    assert found == profile(recorded)["coverage"], "the draw is always the same"


@pytest.mark.slow
def test_coverage_looks_at_so_many_steps_of_an_actor(dataset, make_episode):
    with dataset.writer() as writer:
        for seed in range(3):
            writer.add(make_episode(seed, DRAWN // 2))
    assert profile(dataset)["coverage"]["test"]["pairs"] == DRAWN


def test_coverage_orders_data_by_how_much_they_vary():
    random = np.random.default_rng(0)
    everywhere = random.uniform(-1, 1, (1000, 4))
    line = np.outer(random.uniform(-1, 1, 1000), np.ones(4)) + 0.001 * random.normal(size=(1000, 4))
    few = np.repeat(everywhere[:5], 200, axis=0)
    found = [coverage(pairs) for pairs in (few, line, everywhere)]
    assert all(less["unique_bins"] < more["unique_bins"] for less, more in pairwise(found))
    assert found[0] == {"pairs": 1000, "unique_bins": 0.005, "nearest": None}, "pairs of so few values coincide anyhow"
    assert found[1]["nearest"] < 0.1
    assert found[2]["nearest"] == pytest.approx(1, abs=0.1)
    assert coverage(np.ones((5, 2))) is None and coverage(np.zeros((0, 2))) is None


def test_an_empty_dataset_has_an_empty_profile(dataset):
    found = profile(dataset)
    assert (found["episodes"], found["arrays"], found["returns"], found["coverage"]) == (0, {}, None, {})


def test_a_catalogue_that_is_wrong_is_named(recorded, monkeypatch):
    entries = recorded.entries()
    object.__setattr__(entries[0], "steps", 400)
    monkeypatch.setattr(type(recorded), "entries", lambda _: entries)
    with pytest.raises(DatasetError, match="catalogue is wrong about episode"):
        profile(recorded)
