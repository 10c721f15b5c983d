"""The peers' own readers open what is written here, and what their writers make is read here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import gymnasium
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

from robo_cli.main import dispatch
from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
from robo_rl.entry_points import load
from robo_rl.errors import DatasetError

MINARI, LEROBOT, ROBOMIMIC = (load("formats", name) for name in ("minari", "lerobot", "robomimic"))
HERE = Path(__file__).parent


def test_minari_loads_what_was_exported(make, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    dataset = make(terminated=True, success=True)
    export(MINARI, dataset, tmp_path / "minari" / "cell-v0")
    found = minari.load_dataset("cell-v0")
    assert list(minari.list_local_datasets()) == ["cell-v0"]
    assert (found.total_episodes, found.total_steps) == (3, 11)
    assert found.observation_space == dataset.spec.observation.space and found.action_space == dataset.spec.action.space
    assert not found.storage.jpeg_encoding
    for episode, theirs in zip(dataset, found, strict=True):
        assert theirs.observations.keys() == episode.observations.keys()
        assert all(np.array_equal(theirs.observations[name], values) for name, values in episode.observations.items())
        assert np.array_equal(theirs.actions, episode.actions) and np.array_equal(theirs.rewards, episode.rewards)
        assert theirs.terminations.tolist() == [False] * (len(episode) - 1) + [True] == theirs.truncations.tolist()
    assert [facts["seed"] for facts in found.storage.get_episode_metadata(range(3))] == [0, 1, 2]


@pytest.mark.slow
def test_minari_recovers_the_environment(tmp_path):
    dispatch(["record", "robo/ArmReach-v0", "--episodes", "2", "--out", "data", "--environment.arguments.action_repeat", "3"])
    export(MINARI, Dataset(Path("data")), tmp_path / "reach-v0")
    found = minari.MinariDataset(tmp_path / "reach-v0" / "data")
    environment = found.recover_environment()
    assert environment.observation_space == found.observation_space and environment.action_space == found.action_space
    environment.reset(seed=0)
    environment.step(found[0].actions[0])
    environment.close()


def their_dataset(path: Path, observation_space, action_space, observations, actions, **settings) -> Path:
    storage = minari.dataset.minari_storage.MinariStorage.new(path, observation_space, action_space, **settings)
    steps = len(actions)
    flags = np.arange(steps) == steps - 1
    buffer = EpisodeBuffer(
        id=None, seed=7, options=None, observations=observations, actions=actions, rewards=list(np.arange(steps) / 3),
        terminations=list(flags), truncations=list(flags & False), infos={"success": list(flags)},
    )  # fmt: skip
    storage.update_episodes([buffer, buffer])
    storage.update_metadata({"dataset_id": "their/set-v0", "minari_version": minari.__version__})
    return path


@pytest.mark.slow
def test_minari_nested_observations_texts_and_physical_actions(tmp_path):
    space = gymnasium.spaces.Dict(
        {"goal": gymnasium.spaces.Dict({"desired": gymnasium.spaces.Box(-2, 2, (3,))}), "mission": gymnasium.spaces.Text(20)}
    )
    observations = {"goal": {"desired": [np.full(3, step / 2) for step in range(4)]}, "mission": ["go home"] * 4}
    actions = [np.array([step, 20.0 * step], np.float32) for step in range(3)]
    limits = gymnasium.spaces.Box(np.array([-2, 0], np.float32), np.array([2, 40], np.float32))
    path = their_dataset(tmp_path / "theirs", space, limits, observations, actions)
    import_dataset(MINARI, path, tmp_path / "ours")
    dataset = Dataset(tmp_path / "ours")
    first, second = dataset
    assert (dataset.spec.action.low, dataset.spec.action.high) == ((-2.0, 0.0), (2.0, 40.0))
    assert first.actions.tolist() == [[0, -1], [0.5, 0], [1, 1]]
    assert first.observations["goal_desired"][:, 0].tolist() == [0, 0.5, 1, 1.5]
    assert dataset.spec.observation["goal_desired"].low == -2
    assert (first.instruction, first.success, first.terminated, first.truncated) == ("go home", True, True, False)
    assert first.seed == 7 and len(second) == 3


@pytest.mark.parametrize("as_jpeg", [True, False])
def test_minari_of_choices_and_pictures(tmp_path, as_jpeg):
    space = gymnasium.spaces.Box(0, 255, (40, 48, 3), np.uint8)
    pictures = [np.full((40, 48, 3), [200, 30 * step, 5], np.uint8) for step in range(4)]
    path = their_dataset(tmp_path / "theirs", space, gymnasium.spaces.Discrete(5), pictures, [0, 4, 2], jpeg_encoding=as_jpeg)
    notes = import_dataset(MINARI, path, tmp_path / "ours")
    dataset = Dataset(tmp_path / "ours")
    assert dataset.spec.action.is_discrete and dataset.spec.action.size == 5
    assert next(iter(dataset)).actions.tolist() == [0, 4, 2]
    found = next(iter(dataset)).observations["observation"].astype(int)
    assert np.abs(found - np.stack(pictures)).max() <= (3 if as_jpeg else 0)
    assert ("stored as JPEG, and so they stay: observation" in notes) == as_jpeg


@pytest.mark.slow
def test_minari_in_arrow(make, tmp_path):
    export(MINARI, make(), tmp_path / "out")
    path = tmp_path / "out" / "data" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data_format": "arrow"}))
    with pytest.raises(DatasetError, match=r"Only Minari's HDF5 storage is read(.|\n)*arrow(.|\n)*rewrite it"):
        import_dataset(MINARI, tmp_path / "out", tmp_path / "ours")


@pytest.fixture
def peer():
    """Returns a function that runs a script where lerobot and robomimic are installed."""
    python = os.environ.get("ROBO_RL_PEERS_PYTHON")
    if python is None:
        pytest.skip(
            "ROBO_RL_PEERS_PYTHON names no interpreter with lerobot and robomimic: docs/data/dataset-formats.md makes one"
        )

    def run(script: str, *arguments: object) -> str:
        plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONWARNINGS")}
        command = [python, str(HERE / script), *map(str, arguments)]
        done = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_lerobot_opens_what_was_exported(peer, cells, tmp_path):
    from robo_rl.spec.environment import ArraySpec

    film = ArraySpec("camera_front", (64, 96, 3), "uint8", 0, 255, role="image")
    spec = cells["spec"]((*cells["VECTORS"], *cells["CAMERAS"], film))
    episodes = []
    for index, steps in enumerate((3, 1, 4)):
        episode = cells["episode"](spec, index, steps, terminated=index == 1, success=index > 0)
        shade = np.repeat(np.arange(steps + 1, dtype=np.uint8) * 40 + 20 * index, 64 * 96 * 3).reshape(-1, 64, 96, 3)
        episodes.append(cells["replace"](episode, observations={**episode.observations, "camera_front": shade}))
    dataset = cells["dataset"](tmp_path / "data", spec, episodes)
    export(LEROBOT, dataset, tmp_path / "out")
    found = json.loads(peer("lerobot_peer.py", "read", tmp_path / "out"))
    assert (found["fps"], found["episodes"], len(found["frames"]), found["window"]) == (20, 3, 8, [2, 2])
    steps = [(episode, step) for episode in episodes for step in range(len(episode))]
    for (episode, step), frame in zip(steps, found["frames"], strict=True):
        assert frame["action"] == episode.actions[step].tolist() and frame["next.reward"] == [float(episode.rewards[step])]
        assert frame["observation.state"] == episode.observations["joint_position"][step].tolist()
        goal = [*episode.observations["cube"][step].ravel().tolist(), float(episode.observations["height"][step])]
        assert frame["observation.environment_state"] == goal
        assert frame["observation.wall_time"] == pytest.approx([episode.timestamps[step]])  # float64 in the file
        assert frame["task"] == [episode.instruction]
        is_last = step == len(episode) - 1
        ends = [frame[f"next.{name}"] for name in ("done", "terminated", "truncated", "success")]
        assert ends == [
            [is_last],
            [is_last and episode.terminated],
            [is_last and episode.truncated],
            [is_last and episode.success],
        ]
        exact = episode.observations["camera_wrist"][step].mean((0, 1)) / 255
        assert frame["observation.images.camera_wrist"] == pytest.approx(exact.tolist(), abs=1e-5)
        shade = float(episode.observations["camera_front"][step, 0, 0, 0]) / 255
        assert frame["observation.images.camera_front"] == pytest.approx([shade] * 3, abs=0.02)
    actions = np.concatenate([episode.actions for episode in episodes])
    assert found["mean"] == pytest.approx(actions.mean(0).tolist(), abs=1e-6)


@pytest.mark.slow
def test_what_lerobot_writes_is_read(peer, tmp_path):
    peer("lerobot_peer.py", "write", tmp_path / "theirs")
    notes = import_dataset(LEROBOT, tmp_path / "theirs", tmp_path / "ours")
    dataset = Dataset(tmp_path / "ours")
    assert [(len(e), e.terminated, e.truncated, e.success) for e in dataset] == [
        (3, False, True, False),
        (5, True, False, True),
        (6, True, False, True),
    ]
    assert [episode.instruction for episode in dataset] == ["push", "stack the blöcks", "stack the blöcks"]
    assert (dataset.spec.action.low, dataset.spec.action.high) == ((0.0, -10.0), (50.0, 0.0))
    assert dataset.spec.action.names == ("x", "y") and dataset.spec.action.control_period == 0.1
    last = [*dataset][2]
    assert last.actions[:, 0].tolist() == pytest.approx([-1, -0.6, -0.2, 0.2, 0.6, 1])
    assert last.observations["images_side"][:, 0, 0].tolist() == [[2, step, 7] for step in (0, 1, 2, 3, 4, 5, 5)]
    shades = last.observations["images_top"][:-1].mean((1, 2, 3))
    assert shades == pytest.approx([120 + 10 * step for step in range(6)], abs=3)
    assert any("the file declares no limits of actions" in note for note in notes)
    assert any("pictures come from lossy video: observation.images.Top" in note for note in notes)


@pytest.mark.slow
def test_robomimic_opens_what_was_exported(peer, make, cells, tmp_path):
    dataset = make(spec=cells["spec"]((*cells["FLAT"], *cells["CAMERAS"])))
    export(ROBOMIMIC, dataset, tmp_path / "out.hdf5")
    found = json.loads(peer("robomimic_peer.py", tmp_path / "out.hdf5", "motion", "camera_wrist,camera_top"))
    episodes = [*dataset]
    assert found["actions"] == np.concatenate([episode.actions for episode in episodes]).tolist()
    assert found["next"] == np.concatenate([episode.observations["motion"][1:] for episode in episodes]).tolist()
    assert found["dones"] == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1]
    assert (found["length"], found["action_size"], found["environment"]) == (11, 2, "test/Cell-v0")
    assert found["shapes"] == {"motion": [4], "camera_wrist": [3, 8, 6], "camera_top": [3, 8, 6]}
