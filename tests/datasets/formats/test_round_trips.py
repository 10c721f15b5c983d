"""What a format holds comes back to the bit; what it does not is said before, and kept beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from factories import rest_slow
from robo_datasets.conversion import export, formats, import_dataset, losses, recognized
from robo_datasets.dataset import Dataset
from robo_datasets.formats.lerobot import LeRobot
from robo_datasets.formats.recording import Format
from robo_datasets.formats.side_file import side_path
from robo_datasets.labels import LabelSet, label_sets
from robo_datasets.repair import verify
from robo_rl.entry_points import known, load
from robo_rl.errors import DatasetError, UnknownName

NAMES = sorted(name for name in known("formats") if isinstance(load("formats", name), Format))
SAID = {
    "policy_actions": "policy_actions",
    "sources": "sources",
    "timestamps": "timestamps",
    "terminated": "merges",
    "truncated": "merges",
    "stop_reason": "stop_reason",
    "success": "success",
    "seed": "seed",
    "instruction": "instruction",
    "metadata": "metadata",
    "costs": "costs",
}
"""Field -> a word of the line that announces its loss."""


@pytest.fixture(params=NAMES)
def form(request) -> Format:
    return load("formats", request.param)


def out_of(form: Format, folder):
    return folder / f"export{form.suffix}"


def spec_for(form, cells, arrays=None):
    return cells["spec"](cells["VECTORS"] + cells["CAMERAS"] if arrays is None else arrays)


def test_a_format_keeps_the_protocol(form):
    assert isinstance(form, Format) and form.name in NAMES


def test_an_unknown_format_lists_the_close_ones():
    with pytest.raises(UnknownName, match=r"Unknown format 'robomimik'(.|\n)*did you mean 'robomimic'"):
        load("formats", "robomimik")


TRIPS = {
    "steps": st.lists(st.integers(1, 5), min_size=1, max_size=3),
    "terminated": st.booleans(),
    "truncated": st.booleans(),
    "success": st.sampled_from([None, True, False]),
    "instruction": st.none() | st.text(st.characters(codec="utf-8"), max_size=9),
    "seed": st.none() | st.integers(0, 2**31),
    "arrays": st.sampled_from(["flat", "vectors", "cameras", "all"]),
    "metadata": st.sampled_from([{}, {"source": "scripted"}]),
}


@pytest.mark.slow
@given(**TRIPS)
@settings(max_examples=4, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", rest_slow(NAMES, fast=2))
def test_there_and_back(tmp_path_factory, cells, name, **facts):
    travel(tmp_path_factory.mktemp("trip"), cells, name, **facts)


@pytest.mark.slow
@given(**TRIPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("name", NAMES)
def test_there_and_back_often(tmp_path_factory, cells, name, **facts):
    travel(tmp_path_factory.mktemp("trip"), cells, name, **facts)


def travel(folder, cells, name, steps, arrays, **facts):
    form = load("formats", name)
    chosen = {"flat": cells["FLAT"], "vectors": cells["VECTORS"], "cameras": (*cells["FLAT"], *cells["CAMERAS"])}
    spec = cells["spec"](chosen.get(arrays, cells["VECTORS"] + cells["CAMERAS"]))
    episodes = [cells["episode"](spec, index, count, **facts) for index, count in enumerate(steps)]
    dataset, out = cells["dataset"](folder / "data", spec, episodes), out_of(form, folder)
    said = "\n".join(losses(form, dataset))
    export(form, dataset, out)

    notes = import_dataset(form, out, folder / "back")
    back = Dataset(folder / "back")
    assert [cells["differing"](*pair) for pair in zip(dataset, back, strict=True)] == [set()] * len(steps)
    assert (back.spec, back.card) == (dataset.spec, dataset.card) and verify(back) == []
    assert [entry.identity for entry in back.entries()] == [entry.identity for entry in dataset.entries()]
    assert back.catalogue.notes(back.entries()[0].identity) == ["gripper slipped — zweimal"]
    assert label_sets(back) == ["progress", "vlm"]
    (identity,) = LabelSet(back, "vlm").labelled
    first, second = (vars(LabelSet(one, "vlm").read(identity)) for one in (dataset, back))
    assert first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)
    assert notes == [f"restored to the bit from the side file: {len(steps)} of {len(steps)} episodes"]

    side_path(out).unlink()
    kept_in_form = [form.reduced(episode, spec) for episode in episodes]
    cut = [len(each) == 1 and not (each.has_final_observation or each.terminated) for each in kept_in_form]
    lost = {index for index, is_lost in enumerate(cut) if is_lost}
    assert ("whole episodes" in said) == bool(lost)
    if len(lost) == len(steps):
        with pytest.raises(DatasetError, match="No episode is left"):
            import_dataset(form, out, folder / "bare")
        return
    import_dataset(form, out, folder / "bare")
    kept = [episode for index, episode in enumerate(episodes) if index not in lost]
    for original, found in zip(kept, Dataset(folder / "bare"), strict=True):
        check_only_what_was_said_is_missing(cells, original, found, said)


def check_only_what_was_said_is_missing(cells, original, found, said):
    if len(found) < len(original) or "after the last action" in said:
        assert "after the last action" in said
        original = shortened(cells, original, len(found))
        found = shortened(cells, found, len(found))
    for field in cells["differing"](original, found) - {"spec_fingerprint", "metadata"}:
        group, _, name = field.partition(".")
        word = {"observations": f"observation {name}", "reward_terms": f"reward term {name}"}.get(group) or SAID[field]
        assert word in said, field
    assert not original.metadata or "metadata" in said


def shortened(cells, episode, steps):
    """Returns the first steps, without the observation after them."""
    return SimpleNamespace(**{
        **vars(episode),
        "observations": {name: values[:steps] for name, values in episode.observations.items()},
        "reward_terms": {name: values[:steps] for name, values in episode.reward_terms.items()},
        **{name: getattr(episode, name)[:steps] for name in ("actions", "policy_actions", "rewards", "sources", "timestamps")},
        "costs": {name: values[:steps] for name, values in episode.costs.items()},
    })  # fmt: skip


@pytest.mark.slow
def test_reading_returns_what_reduced_promises(form, make, cells, tmp_path):
    """So `losses` can say beforehand what would only be seen afterwards."""
    dataset, out = make(terminated=True, success=True), out_of(form, tmp_path)
    export(form, dataset, out, keep_losses=False)
    assert not side_path(out).exists()
    for episode, found in zip(dataset, form.read(out).recordings(), strict=True):
        promised = form.reduced(episode, dataset.spec)
        assert found.digest == promised.digest
        for name, values in promised.observations.items():
            assert name in form.approximated(dataset.spec) or (found.observations[name] == values).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*NAMES} - {"robomimic"}))
def test_choices(name, make, cells, tmp_path):
    dataset = make(spec=cells["spec"](cells["FLAT"], cells["CHOICE"]))
    form = load("formats", name)
    export(form, dataset, out_of(form, tmp_path))
    import_dataset(form, out_of(form, tmp_path), tmp_path / "back")
    back = Dataset(tmp_path / "back")
    assert all(cells["differing"](*pair) == set() for pair in zip(dataset, back, strict=True))


def test_robomimic_refuses_choices(make, cells, tmp_path):
    dataset = make(spec=cells["spec"](cells["FLAT"], cells["CHOICE"]))
    with pytest.raises(DatasetError, match="holds no discrete actions"):
        export(load("formats", "robomimic"), dataset, tmp_path / "out.hdf5")
    assert [path.name for path in tmp_path.iterdir()] == ["data"], "nothing is left behind"


def test_what_is_lost_is_counted(make):
    lines = losses(load("formats", "robomimic"), make(terminated=True, success=False))
    assert "terminated or truncated: the format merges them: 3 of 3 episodes" in lines
    assert "success: 3 of 3 episodes" in lines and "costs (cost): 3 of 3 episodes" in lines
    assert "reward term reach: 3 of 3 episodes" in lines
    assert "rewards of models: the label set 'vlm'" in lines and "notes on episodes" in lines
    assert any(line.startswith("interventions by a person") for line in lines)


def test_nothing_is_said_to_be_lost_that_is_not(cells, tmp_path):
    spec = cells["spec"](cells["FLAT"])
    plain = cells["episode"](spec, reward_terms={}, costs=None, metadata={}, timestamps=np.arange(5) * 0.05)
    plain = cells["replace"](plain, policy_actions=plain.actions, sources=np.full(4, 4, np.int8))
    dataset = Dataset.create(tmp_path / "data", spec)
    with dataset.writer() as writer:
        writer.add(plain)
    assert losses(load("formats", "minari"), dataset) == []


def test_an_export_that_was_edited_is_not_overwritten(make, cells, tmp_path):
    form = load("formats", "robomimic")
    dataset, out = make(), tmp_path / "out.hdf5"
    export(form, dataset, out)
    with h5py.File(out, "a") as file:
        file["data/demo_2/rewards"][...] = 7
        del file["data/demo_0"]
    notes = import_dataset(form, out, tmp_path / "back")
    assert "restored to the bit from the side file: 1 of 2 episodes" in notes
    assert "changed since they were exported, so not restored from the side file: 1 of 2 episodes" in notes
    kept, edited = Dataset(tmp_path / "back")
    assert cells["differing"](kept, [*dataset][1]) == set()
    assert (edited.rewards == 7).all() and not edited.costs
    assert LabelSet(Dataset(tmp_path / "back"), "vlm").labelled == set(), "labels belong to the episode as it was"


def test_an_edited_export_without_all_observations(make, cells, tmp_path):
    """The restored spec needs cameras that the edited episode has not: then nothing is restored, and that is said."""
    form, out = load("formats", "d4rl"), tmp_path / "out.hdf5"
    export(form, make(), out)
    with h5py.File(out, "a") as file:
        file["rewards"][0] = 7
    notes = import_dataset(form, out, tmp_path / "back")
    assert any("is of other episodes than lie here now" in note for note in notes)
    assert "observation camera_top is not in the file" in notes
    assert list(Dataset(tmp_path / "back").spec.observation) == ["joint_position", "cube", "height", "count"]


def test_two_episodes_that_are_the_same(cells, tmp_path, form):
    spec = cells["spec"](cells["FLAT"])
    twins = [cells["episode"](spec, 0, costs=np.full(4, cost, np.float32)) for cost in (1.0, 2.0)]
    dataset = cells["dataset"](tmp_path / "data", spec, twins)
    export(form, dataset, out_of(form, tmp_path))
    import_dataset(form, out_of(form, tmp_path), tmp_path / "back")
    assert [episode.costs["cost"][0] for episode in Dataset(tmp_path / "back")] == [1.0, 2.0]


@pytest.mark.slow
def test_films(cells, tmp_path):
    """Pictures of a film are near what they were, each episode at its own place; the side file has them to the bit."""
    from robo_rl.spec.environment import ArraySpec

    camera = ArraySpec("camera_wrist", (64, 96, 3), "uint8", 0, 255, role="image")
    spec = cells["spec"]((*cells["FLAT"], camera))
    shades = [np.repeat(np.arange(n + 1, dtype=np.uint8) * 20 + 10 * n, 64 * 96 * 3).reshape(-1, 64, 96, 3) for n in (3, 1, 5)]
    episodes = [cells["episode"](spec, index, len(shade) - 1, terminated=True) for index, shade in enumerate(shades)]
    episodes = [
        cells["replace"](episode, observations={**episode.observations, "camera_wrist": shade})
        for episode, shade in zip(episodes, shades, strict=True)
    ]
    dataset, form, out = cells["dataset"](tmp_path / "data", spec, episodes), load("formats", "lerobot"), tmp_path / "out"
    assert "observation camera_wrist to the bit: lossy video: 3 of 3 episodes" in losses(form, dataset)
    export(form, dataset, out)
    (film,) = out.rglob("*.mp4")
    assert film.relative_to(out).as_posix() == "videos/observation.images.camera_wrist/chunk-000/file-000.mp4"
    import_dataset(form, out, tmp_path / "back")
    assert all(cells["differing"](*pair) == set() for pair in zip(dataset, Dataset(tmp_path / "back"), strict=True))
    for original, found in zip(episodes, form.read(out).recordings(), strict=True):
        errors = np.abs(found.observations["camera_wrist"].astype(int) - original.observations["camera_wrist"][:-1].astype(int))
        assert errors.max() <= 4
    exact = LeRobot(as_videos=False)
    assert not any("lossy" in line for line in losses(exact, dataset))
    export(exact, dataset, tmp_path / "exact")
    for original, found in zip(episodes, exact.read(tmp_path / "exact").recordings(), strict=True):
        assert (found.observations["camera_wrist"] == original.observations["camera_wrist"][:-1]).all()


def test_a_source_says_its_format(form, make, tmp_path):
    out = out_of(form, tmp_path)
    export(form, make(), out)
    assert recognized(out) is form
    assert [other.name for other in formats() if other.recognizes(out)] == [form.name]


def test_what_is_of_no_format(tmp_path):
    (tmp_path / "text").write_text("no")
    for path in (tmp_path, tmp_path / "text"):
        with pytest.raises(
            DatasetError,
            match=r"(?s)of no known format.*d4rl, lerobot, minari, rlds, robomimic, rosbag.*convert it to one of",
        ):
            recognized(path)
    with pytest.raises(DatasetError, match="does not exist"):
        recognized(tmp_path / "nothing")


@pytest.mark.slow
def test_nothing_is_overwritten_and_nothing_half_done_stays(form, make, tmp_path, monkeypatch):
    dataset, out = make(), out_of(form, tmp_path)
    export(form, dataset, out)
    with pytest.raises(DatasetError, match="is there already"):
        export(form, dataset, out)
    with pytest.raises(DatasetError, match="is there already"):
        import_dataset(form, out, dataset.path)
    shutil.rmtree(out) if out.is_dir() else out.unlink()
    side_path(out).unlink(missing_ok=True)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("robo_datasets.formats.side_file.SideFileWriter.add", full)
    with pytest.raises(DatasetError, match=r"could not be written; nothing of it is left(.|\n)*No space left"):
        export(form, dataset, out)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_episodes_without_a_step(form, make, tmp_path):
    dataset = make(steps=(4, 0))
    with pytest.raises(DatasetError, match=r"episodes without a step(.|\n)*1 of 2(.|\n)*--select.least-steps 1"):
        export(form, dataset, out_of(form, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.append("../..")  # of the factories
from conftest import episode_of, spec_of
from robo_datasets.conversion import export
from robo_datasets.dataset import Dataset
from robo_rl.entry_points import load
from robo_rl.errors import DatasetError
spec, folder = spec_of(), Path(sys.argv[1])
dataset = Dataset.create(folder / "data", spec)
with dataset.writer() as writer:
    for number in range(3):
        writer.add(episode_of(spec, number, 300))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit, more than the 32 kB that SQLite needs, then fails
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
for out in ("one", "two"):
    try:
        export(load("formats", sys.argv[2]), dataset, folder / out)
    except DatasetError as error:
        print("nothing of it is left" in str(error))
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", rest_slow([33_000, 150_000]))
def test_a_full_disk_is_one_error(form, tmp_path, room):
    """In a process of its own: HDF5 that was told of a write that failed crashes, then or at a later file."""
    command = [sys.executable, "-c", FULL, str(tmp_path), form.name, str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "True"]), done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_empty_dataset(form, cells, tmp_path):
    dataset = Dataset.create(tmp_path / "data", cells["spec"]())
    with pytest.raises(DatasetError, match="has no episodes"):
        export(form, dataset, out_of(form, tmp_path))
