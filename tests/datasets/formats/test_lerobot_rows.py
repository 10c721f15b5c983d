"""Rows of a LeRobotDataset that are missing, out of order, there twice or of several tasks: put right or refused, and told."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from factories import choices, make_spec, picture_spec, rich_episode
from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.formats.lerobot import LeRobot
from robo_datasets.formats.lerobot_video import Film, read_film
from robo_rl.errors import DatasetError
from robo_rl.spec.environment import ArraySpec

STEPS = (8, 6, 7)
DATA = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
SHADE = 12
"""Brightness of a picture, by step and episode, so far apart that a lossy film cannot mix them up."""


def shade(episode: int, step: int) -> int:
    return 10 + SHADE * step + 4 * episode


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[bool, Path]:
    """A LeRobotDataset of three episodes with a film, and one without a camera."""
    folders = {}
    for has_film in (True, False):
        root = tmp_path_factory.mktemp("lerobot")
        camera = (picture_spec("top", (64, 64, 3)),) if has_film else ()
        spec = make_spec("test/Cell-v0", ArraySpec("place", (2,)), *camera)
        dataset = Dataset.create(root / "data", spec)
        with dataset.writer() as writer:
            for number, steps in enumerate(STEPS):
                episode = rich_episode(spec, steps, number, terminated=True, truncated=False, instruction=f"task {number}")
                place = np.stack([np.full(steps + 1, number), np.arange(steps + 1)], axis=1).astype(np.float32)
                seen = {"place": place}
                if has_film:
                    shades = np.array([shade(number, step) for step in range(steps + 1)], np.uint8)
                    seen["top"] = np.broadcast_to(shades[:, None, None, None], (steps + 1, 64, 64, 3)).copy()
                writer.add(replace(episode, observations=seen))
        export(LeRobot(), dataset, root / "out", keep_losses=False)
        (root / "out" / "meta" / "robo_rl.json").unlink()
        folders[has_film] = root / "out"
    return folders


@pytest.fixture(params=[True, False], ids=["film", "numbers"])
def folder(request, written, tmp_path) -> Path:
    return Path(shutil.copytree(written[request.param], tmp_path / "lerobot"))


@pytest.fixture
def filmed(written, tmp_path) -> Path:
    return Path(shutil.copytree(written[True], tmp_path / "lerobot"))


def change(folder: Path, edit, name: str = DATA) -> None:
    """Rewrites a table by a function of the table."""
    path = folder / name
    pyarrow.parquet.write_table(edit(pyarrow.parquet.read_table(path)), path)


def column(name: str, values) -> object:
    return lambda table: table.set_column(table.column_names.index(name), name, pyarrow.array(values(table[name].to_numpy())))


def read(folder: Path) -> tuple[list, str]:
    notes = import_dataset(LeRobot(), folder, folder.with_name("back"))
    return [*Dataset(folder.with_name("back"))], "\n".join(notes)


def assert_pictures_belong_to_their_rows(episodes) -> None:
    for episode in episodes:
        state = next(values for name, values in episode.observations.items() if name != "images_top")
        if "images_top" in episode.observations:
            seen = episode.observations["images_top"].mean((1, 2, 3))
            expected = [shade(int(number), int(step)) for number, step in state]
            assert seen == pytest.approx(expected, abs=SHADE / 4)


def steps_of(episodes) -> list[list[int]]:
    states = (next(values for name, values in e.observations.items() if name != "images_top")[: len(e)] for e in episodes)
    return [[int(step) for _, step in state] for state in states]


def test_pictures_belong_to_the_rows_that_are_left(folder):
    """Rows 2 to 4 of each episode are gone, as after a filter of idle frames: 0 of 14 pictures were right behind the gap."""
    change(folder, lambda table: table.filter(pyarrow.array(~np.isin(table["frame_index"].to_numpy(), [2, 3, 4]))))
    episodes, notes = read(folder)
    assert [steps[:3] for steps in steps_of(episodes)] == [[0, 1, 5]] * 3
    assert_pictures_belong_to_their_rows(episodes)
    assert "meta/episodes says another length of 3 episodes than the data has: the data is taken" in notes


@pytest.mark.parametrize("moved", [0.4, -1.0, np.nan], ids=["between", "before", "nan"])
def test_rows_between_two_frames_are_refused_in_one_sentence(filmed, moved):
    """Before, the film was counted off and whatever lay there taken."""
    change(
        filmed, column("timestamp", lambda times: np.where(np.arange(len(times)) == 9, moved / 10, times).astype(np.float32))
    )
    with pytest.raises(
        DatasetError, match=r"time stamps of episode 1 are not those of frames(.|\n)*in row [01]\n(.|\n)*1/10 s"
    ):
        read(filmed)


@pytest.mark.parametrize("order", ["shuffled", "interleaved", "reversed"])
def test_rows_out_of_order_are_put_in_order(folder, order):
    """Three episodes became up to 21 fragments, without a word."""

    def edit(table):
        frames = table["frame_index"].to_numpy()
        draw = {"shuffled": np.random.default_rng(0).random(len(frames)), "interleaved": frames, "reversed": -frames}
        return table.take(np.argsort(draw[order], kind="stable"))

    change(folder, edit)
    episodes, notes = read(folder)
    assert sorted(steps_of(episodes)) == sorted([[*range(steps)] for steps in STEPS])
    assert_pictures_belong_to_their_rows(episodes)
    assert ("its rows lay out of order: they are sorted by frame" in notes) == (order != "interleaved")


def test_rows_that_are_there_twice_are_taken_once(folder):
    change(folder, lambda table: pyarrow.concat_tables([table, table.slice(0, STEPS[0])]))
    change(folder, lambda table: pyarrow.concat_tables([table, table.slice(0, 1)]), EPISODES)
    episodes, notes = read(folder)
    assert sorted(steps_of(episodes)) == sorted([[*range(steps)] for steps in STEPS])
    assert "rows that the data has twice: taken once: 1 of 3 episodes" in notes
    assert "meta/episodes lists 1 episodes more than once: the last entry is taken" in notes


def test_two_recordings_under_one_number_are_refused(folder):
    change(folder, column("episode_index", lambda indices: np.where(indices == 2, 0, indices)))
    with pytest.raises(DatasetError, match=r"several rows of one frame, and they differ(.|\n)*frame 0 of episode 0"):
        read(folder)


def test_several_tasks_in_an_episode_are_told(folder):
    change(folder, column("task_index", lambda tasks: np.where(np.arange(len(tasks)) == 3, 1, tasks)))
    episodes, notes = read(folder)
    assert "several tasks in one episode: the first is taken as its instruction: 1 of 3 episodes" in notes
    assert [episode.instruction for episode in episodes] == ["task 0", "task 1", "task 2"]


def test_metadata_that_promises_more_than_there_is(folder):
    """The last episode's rows are gone; `meta/episodes` and `info.json` still have it."""
    change(folder, lambda table: table.slice(0, STEPS[0] + STEPS[1] - 2))
    episodes, notes = read(folder)
    assert [len(episode) for episode in episodes] == [8, 3]  # the cut one has no end, so its last action goes
    assert "meta/episodes lists 1 episodes of which the data has no row" in notes
    assert "meta/episodes says another length of 1 episodes than the data has" in notes
    assert "says 3 episodes, the data has 2" in notes and "says 21 frames, the data has 12" in notes


def with_actions(tmp_path: Path, kind: str, values: np.ndarray) -> Path:
    """Writes a LeRobotDataset whose actions are whole numbers (T, A), or (T,) of one each."""
    spec = make_spec("test/Cell-v0", ArraySpec("place", (2,)), action=choices("left", "right", "stay"))
    dataset = Dataset.create(tmp_path / "data", spec)
    with dataset.writer() as writer:
        writer.add(rich_episode(spec, len(values), 0, terminated=True, truncated=False))
    out = tmp_path / "lerobot"
    export(LeRobot(), dataset, out, keep_losses=False)
    (out / "meta" / "robo_rl.json").unlink()
    info = out / "meta" / "info.json"
    described = json.loads(info.read_text())
    described["features"]["action"] |= {"dtype": kind, "shape": [1 if values.ndim == 1 else values.shape[1]]}
    info.write_text(json.dumps(described))
    change(out, column("action", lambda _: list(values.astype(kind))))
    return out


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint16"])
def test_whole_numbers_of_any_width_are_choices_or_vectors(tmp_path, kind):
    """An int32 choice and an int64 vector were refused as of "another shape than their spec. got: ()"."""
    (tmp_path / "one").mkdir()
    (episode,), _ = read(with_actions(tmp_path / "one", kind, np.array([0, 2, 1, 2])))
    assert episode.actions.tolist() == [0, 2, 1, 2]
    (tmp_path / "two").mkdir()
    (episode,), notes = read(with_actions(tmp_path / "two", kind, np.array([[0, 5], [4, 10], [2, 0], [4, 5]])))
    assert episode.actions.tolist() == [[-1, 0], [1, 1], [0, -1], [1, 0]] and "no limits of actions" in notes


def test_no_picture_of_a_film_is_nearer_to_the_one_before(tmp_path):
    """Every second frame was coded from the one before: 11 of 40 were nearer to that than to their own picture."""
    ground = np.random.default_rng(0).integers(60, 200, (12, 12, 3), dtype=np.uint8)
    pictures = np.repeat(cv2.resize(ground, (96, 96), interpolation=cv2.INTER_CUBIC)[None], 40, axis=0)
    for step, picture in enumerate(pictures):
        cv2.circle(picture, (10 + step, 40), 5, (200, 40, 40), -1)
    with Film(tmp_path / "film.mp4", 20, 96, 96) as film:
        film.add(pictures)
    read_back = read_film(tmp_path / "film.mp4", np.arange(40) / 20, 20, (96, 96, 3))
    own, before = (((read_back[1:] - there.astype(float)) ** 2).mean((1, 2, 3)) for there in (pictures[1:], pictures[:-1]))
    assert (own <= before).all()


def test_negative_choices_are_refused_by_name(tmp_path):
    with pytest.raises(DatasetError, match=r"Discrete actions count from 0(.|\n)*-1 in the part from episode 0(.|\n)*as float"):
        read(with_actions(tmp_path, "int64", np.array([0, -1, 1, 2])))
