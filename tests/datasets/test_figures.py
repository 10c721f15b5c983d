"""The figures of a card are those of the episodes."""

import os
from dataclasses import replace

import numpy as np
import pytest

from robo_datasets.curation import inherited
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash, figures_of, normalised
from robo_datasets.repair import verify


@pytest.fixture
def filled(dataset, make_episode) -> Dataset:
    with dataset.writer() as writer:
        for seed, success in ((0, True), (1, False), (2, None), (3, True)):
            writer.add(make_episode(seed, steps=3 + seed, success=success), identity=f"{seed:032x}")
    return dataset


def test_figures_are_those_of_the_episodes(filled):
    episodes = [*filled]
    returns = [float(np.sum(episode.rewards, dtype=np.float64)) for episode in episodes]
    figures = figures_of(filled.entries())
    assert (figures["episodes"], figures["steps"]) == (4, 3 + 4 + 5 + 6)
    assert figures["return"] == pytest.approx({"least": min(returns), "mean": np.mean(returns), "most": max(returns)})
    assert figures["success"] == pytest.approx(2 / 3), "of the episodes that know of success"


def test_figures_of_nothing(dataset):
    figures = figures_of(dataset.entries())
    assert (figures["episodes"], figures["steps"], figures["return"], figures["success"]) == (0, 0, None, None)


def test_content_hash_depends_on_episodes_and_order(filled, tmp_path, spec):
    entries, episodes = filled.entries(), [*filled]
    hashes = {content_hash(entries), content_hash(entries[::-1]), content_hash(entries[:-1])}
    for changed in range(len(episodes)):
        other = Dataset.create(tmp_path / f"changed-{changed}", spec)
        with other.writer() as writer:
            for index, episode in enumerate(episodes):
                rewards = episode.rewards.copy()
                rewards[-1] += index == changed
                writer.add(replace(episode, rewards=rewards), identity=f"{index:032x}")
        hashes.add(content_hash(other.entries()))
    assert len(hashes) == 3 + len(episodes)


def test_verify_compares_the_content_hash(filled):
    filled.describe(filled.card | figures_of(filled.entries()))
    assert Dataset(filled.path).card["how"] == "by hand"
    assert verify(Dataset(filled.path)) == []
    entry = filled.entries()[1]
    filled.catalogue.remove(entry.identity)
    os.remove(filled.path / "episodes" / entry.file)
    (found,) = verify(Dataset(filled.path))
    assert found.name == "dataset.json" and "not those that its content hash is of" in found.problem


def test_scores_run_from_random_to_expert():
    reference = {"random": -2.0, "expert": 6.0}
    assert [normalised(value, reference) for value in (-2.0, 0.0, 6.0, 8.0)] == [0.0, 25.0, 100.0, 125.0]


def test_what_a_made_dataset_knows_of_its_environment():
    one = {"environment": "robo/ArmPick-v0", "arguments": {"action_repeat": 3}, "reference": {"random": 0.0}, "seed": 1}
    assert inherited([one]) == {name: one[name] for name in ("environment", "arguments", "reference")}
    assert inherited([one, one | {"reference": {"random": 0.1}}]) == {name: one[name] for name in ("environment", "arguments")}
    assert inherited([one, one | {"arguments": {}}]) == {}
    assert inherited([{"how": "by hand"}]) == {}
