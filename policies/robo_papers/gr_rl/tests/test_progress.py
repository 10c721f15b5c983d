"""Progress: targets by hand, lost time by hand, detours on a line found, and what a filter leaves for learning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from factories import axes, make_dataset, make_episode, make_spec
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_papers.gr_rl.critic import ProgressConfig, Track, fit, lost_share, targets, two_hot
from robo_papers.gr_rl.reward import ProgressReward, key_of, save, tracks_of
from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.spec.environment import ArraySpec

SPEC = make_spec("line", ArraySpec("position", (2,)), action=axes("step"))
CONFIG = ProgressConfig(hidden=(32,), updates=1500, batch_size=128, lr=3e-3)


def walk(seed: int, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Positions (T + 1, 2) from 0 to 1, and True for the steps of a detour; the second number is noise."""
    random = np.random.default_rng(seed)
    x, positions, wrong = 0.0, [0.0], []
    start = int(random.integers(3, 12)) if random.random() < share else -1
    stop = start + int(random.integers(6, 14)) if start >= 0 else -1
    while x < 1.0:
        is_wrong = start <= len(wrong) < stop
        x += 0.05 * (random.choice([-1.0, 0.0]) if is_wrong else 1.0) + random.normal(0.0, 0.004)
        positions.append(x)
        wrong.append(is_wrong)
    return np.stack([positions, random.normal(size=len(positions))], 1).astype(np.float32), np.array(wrong)


def episode_of(positions: np.ndarray, *, success: bool = True, **metadata):
    count = len(positions) - 1
    actions = np.diff(positions[:, :1], axis=0).astype(np.float32)
    changes = {"terminated": success, "truncated": not success, "stop_reason": "goal" if success else "time_limit"}
    times = np.arange(count + 1) * 0.1
    return make_episode(
        {"position": positions},
        actions=actions,
        policy_actions=actions,
        rewards=np.zeros(count, np.float32),
        sources=np.zeros(count, np.int8),
        timestamps=times,
        success=success,
        spec_fingerprint=SPEC.fingerprint,
        metadata=metadata,
        **changes,
    )


def test_targets_and_chances_are_those_of_the_page():
    states = np.zeros((4, 1), np.float32)
    np.testing.assert_allclose(targets(Track(states, True), 0.5), [0.125, 0.25, 0.5, 1.0])
    np.testing.assert_allclose(targets(Track(states, False), 0.5), 0.0)
    values = torch.tensor([0.0, 0.13, 0.5, 1.0])
    chances = two_hot(values, 5)
    np.testing.assert_allclose(chances.sum(-1), 1.0)
    np.testing.assert_allclose(chances @ torch.linspace(0, 1, 5), values, atol=1e-6)
    assert (chances > 0).sum(-1).max() <= 2


def test_lost_time_is_counted_in_steps():
    assert lost_share(0.9 ** np.array([4.0, 3, 2, 1, 0]), 0.9, 2) == pytest.approx([0] * 4)
    assert lost_share(np.full(6, 0.5), 0.9, 3) == pytest.approx([1] * 5)
    assert lost_share(0.9 ** np.array([5.0, 6, 7]), 0.9, 1) == pytest.approx([2, 2])
    half = lost_share(0.9 ** np.array([5.0, 5, 4]), 0.9, 2)  # the first step sees itself alone
    assert half == pytest.approx([1.0, 0.5])


def parts_of(walks) -> list[list[Track]]:
    tracks = [Track(positions, True) for positions, _ in walks]
    return [tracks[number :: CONFIG.members] for number in range(CONFIG.members)]


def measured(walks, critic, member_of, best=0.1) -> tuple[float, float]:
    lost, wrong = [], []
    for number, (positions, truth) in enumerate(walks):
        progress = critic.progress(positions, member=member_of(number), best=best)
        lost.append(lost_share(progress, float(critic.discount), 6))
        wrong.append(truth)
    dropped, truth = np.concatenate(lost) > 0.7, np.concatenate(wrong)
    return (dropped & truth).sum() / dropped.sum(), (dropped & truth).sum() / truth.sum()


@pytest.mark.slow
def test_detours_are_found_by_the_member_that_has_not_seen_them():
    walks = [walk(seed) for seed in range(60)]
    critic = fit(parts_of(walks), CONFIG)
    precision, recall = measured(walks, critic, lambda number: number % CONFIG.members)
    assert precision >= 0.8 and recall >= 0.7
    clean = [walk(seed, 0.0) for seed in range(900, 920)]
    lost = [lost_share(critic.progress(positions, best=0.1), float(critic.discount), 6) for positions, _ in clean]
    assert (np.concatenate(lost) > 0.7).mean() < 0.05
    start, end = critic.progress(np.array([[0.0, 0.0], [1.0, 0.0]], np.float32))
    assert start < 0.4 and end > 0.8


@pytest.mark.slow
def test_without_ends_nothing_is_known():
    """The control: the same walks, whose successes are dealt out by chance."""
    walks = [walk(seed) for seed in range(60)]
    random = np.random.default_rng(0)
    tracks = [Track(random.permutation(positions), True) for positions, _ in walks]
    critic = fit([tracks[number :: CONFIG.members] for number in range(CONFIG.members)], CONFIG)
    precision, recall = measured(walks, critic, lambda number: number % CONFIG.members)
    assert precision < 0.6 or recall < 0.4


@pytest.mark.slow
def test_a_retry_makes_a_failure_of_what_came_before_it():
    positions, _ = walk(0, 0.0)
    whole, failed = tracks_of(SPEC, episode_of(positions, retries=[7]))
    assert whole.success and len(whole.states) == len(positions)
    assert not failed.success and len(failed.states) == 8
    _, marked = tracks_of(SPEC, episode_of(positions), ["retry at 0.7 s: slipped", "it was a retry", "0-1 s poor"])
    np.testing.assert_array_equal(marked.states, failed.states)
    again = [Track(walk(seed, 0.0)[0], True) for seed in range(12)]
    cut = [Track(track.states[:8], False) for track in again]
    both = [again[n::3] + cut[n::3] for n in range(3)]
    early = np.array([[0.2, 0.0]], np.float32)
    with_failures, without = fit(both, CONFIG).progress(early), fit([again[n::3] for n in range(3)], CONFIG).progress(early)
    assert with_failures[0] < 0.8 * without[0]


@pytest.mark.slow
def test_filtered_steps_have_no_label_and_the_dataset_keeps_them(tmp_path, capsys):
    walks = [walk(seed) for seed in range(30)]
    make_dataset(tmp_path / "data", SPEC, [episode_of(positions) for positions, _ in walks])
    words = ["--settings.updates", "400", "--settings.hidden", "32"]
    folder = str(tmp_path / "fit")
    assert dispatch(["reward", "fit", "progress", "--dataset", str(tmp_path / "data"), "--out", folder, *words]) == 0
    assert "30 successes and 0 failures" in capsys.readouterr().out
    label = ["label", str(tmp_path / "data"), "--reward", "progress", "--reward.settings.folder", folder, "--name", "kept"]
    assert dispatch(label) == 0
    dataset = Dataset(tmp_path / "data")
    labels = LabelSet.existing(dataset, "kept")
    steps = sum(entry.steps for entry in dataset.entries())
    assert 0.5 * steps < labels.count(dataset.entries()) < steps
    model = ProgressReward(folder)
    episode = episode_of(walks[0][0])
    found = model.label(episode)
    gains = np.diff(model.progress(episode))
    np.testing.assert_allclose(found.values[found.valid], gains[found.valid], atol=1e-6)
    assert ProgressReward(folder, lost=1.5).identity != model.identity
    assert len(model.fitted_to) == 30


def test_bad_input_has_one_clear_error(tmp_path):
    with pytest.raises(InvalidSetting, match="Which fitted reward"):
        ProgressReward()
    with pytest.raises(InvalidSetting, match="too few episodes"):
        fit([[Track(np.zeros((3, 2), np.float32), False)]] * 3, CONFIG)
    for wrong in ({"window": 0}, {"lost": 0.0}, {"best": 0.0}):
        with pytest.raises(InvalidSetting, match=next(iter(wrong))):
            ProgressReward("folder", **wrong)
    for wrong in ({"members": 1}, {"least": 1.0}, {"hidden": ()}):
        with pytest.raises(InvalidSetting, match=next(iter(wrong))):
            ProgressConfig(**wrong)
    critic = fit(parts_of([walk(seed) for seed in range(6)]), ProgressConfig(hidden=(8,), updates=1))
    save(tmp_path / "fit", critic, ProgressConfig(hidden=(8,), updates=1), SPEC, {"folds": {}})
    positions, _ = walk(0)
    positions[3] = np.nan
    found = ProgressReward(str(tmp_path / "fit"), window=2, lost=1000.0).label(episode_of(positions))
    assert not found.valid[2:4].any() and found.valid.any()
    other = make_spec("other", ArraySpec("position", (3,)), action=axes("step"))
    stranger = make_episode({"position": np.zeros((2, 3), np.float32)}, spec_fingerprint=other.fingerprint)
    with pytest.raises(SpecMismatch, match="fit a critic"):
        ProgressReward(str(tmp_path / "fit")).label(stranger)


def test_an_episode_is_known_by_what_it_did():
    positions, _ = walk(0)
    assert key_of(episode_of(positions)) == key_of(episode_of(positions.copy()))
    assert key_of(episode_of(positions)) != key_of(episode_of(walk(1)[0]))
