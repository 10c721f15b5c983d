"""Bags of ROS 2 become episodes at one rate; torn, hostile and contradictory ones are read as far as they go, or refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import contextlib

import bag_writer as bags
from bag_writer import arm, command, image, state, write, write_mcap
from mcap.reader import make_reader
from mcap.writer import CompressionType
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Writer

from factories import rest_slow
from robo_datasets.conversion import import_dataset, recognized, with_mapping, writable
from robo_datasets.dataset import Dataset
from robo_datasets.formats.bags.files import bags_in
from robo_datasets.formats.bags.messages import Decoder
from robo_datasets.formats.bags.reader import FORMAT
from robo_datasets.formats.bags.resampling import Signal, steps_between
from robo_rl.entry_points import load
from robo_rl.errors import DatasetError, InvalidSetting, UnknownName

STATES = {"topic": "/joint_states", "names": ["shoulder", "elbow"], "unit": "rad"}
COMMANDS = {"topic": "/arm/commands", "names": ["shoulder", "elbow"], "unit": "rad", "low": [-200, -200], "high": [200, 200]}
MAPPING = {"rate": 20, "observations": {"joint_position": STATES}, "actions": [COMMANDS], "mode": "joint_position"}
KINDS = ("mcap", "sqlite3")


def reader(folder: Path, **changes):
    path = folder / "bag.yaml"
    path.write_text(yaml.safe_dump({**MAPPING, **changes}))
    return with_mapping(FORMAT, path)


def imported(folder: Path, source: Path, **changes) -> tuple[Dataset, str]:
    """Returns the dataset made of a bag, and the remarks."""
    notes = import_dataset(reader(folder, **changes), source, folder / "data")
    return Dataset(folder / "data"), "\n".join(notes)


def physical(dataset: Dataset, episode) -> np.ndarray:
    return np.array([dataset.spec.action.to_physical(action) for action in episode.actions])


@pytest.mark.parametrize("kind", KINDS)
def test_an_arm_at_two_rates(tmp_path, kind):
    """States at 100 Hz and commands at 20 Hz become steps at 20 Hz: each action answers the state at its begin."""
    source = write(tmp_path / "bag", arm(10), kind)
    assert recognized(source).name == "rosbag"
    dataset, notes = imported(tmp_path, source)
    (episode,) = dataset
    assert len(episode) == 10 and dataset.spec.action.control_period == 0.05 and dataset.spec.action.mode == "joint_position"
    places = np.arange(11) * 0.05
    np.testing.assert_allclose(episode.observations["joint_position"], np.stack([places, -places], 1), atol=1e-6)
    np.testing.assert_allclose(physical(dataset, episode)[:, 0], np.arange(10), atol=1e-4)
    assert dataset.spec.observation["joint_position"].unit == "rad" and dataset.spec.action.units == ("rad", "rad")
    np.testing.assert_allclose(np.diff(episode.timestamps), 0.05, atol=1e-6)
    assert "times are those of the recorder (clock: log)" in notes, "commands have no header"
    assert "/joint_states: 40 of 51 messages are dropped at 20 steps a second" in notes
    assert "/arm/commands: 0 of 10 messages" in notes


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_those_of_the_peers(tmp_path, kind):
    """Every message is what rosbags' own reader returns, in its order."""
    picture = np.arange(4 * 6 * 3).reshape(4, 6, 3)
    sent = [*arm(3), image(0.02, picture), bags.pose(0.03, (1, 2, 3), (0, 0, 1, 0)), bags.text(0.04, "start")]
    source = write(tmp_path / "bag", sorted(sent, key=lambda each: each.at), kind)
    (bag,) = bags_in(source)
    with AnyReader([source]) as peer:
        theirs = [(c.topic, stamp, repr(peer.deserialize(raw, c.msgtype))) for c, stamp, raw in peer.messages()]
    decoder = Decoder()
    ours = [(raw.topic.name, raw.logged, repr(decoder.decode(raw))) for raw in bag.messages()]
    assert sorted(ours) == sorted(theirs) and len(ours) == len(sent)


@pytest.mark.parametrize("settings", [{}, {"compression": CompressionType.LZ4}, {"use_chunking": False}, {"chunk_size": 500}])
def test_a_single_mcap_file(tmp_path, settings):
    source = write_mcap(tmp_path / "one.mcap", arm(4), **settings)
    with source.open("rb") as file:
        theirs = [(channel.topic, message.log_time, message.data) for _, channel, message in make_reader(file).iter_messages()]
    ours = [(raw.topic.name, raw.logged, raw.data) for raw in bags_in(source)[0].messages()]
    assert sorted(ours) == sorted(theirs)
    assert len(next(iter(imported(tmp_path, source)[0]))) == 4


def test_messages_that_are_compressed_one_by_one(tmp_path):
    writer = Writer(tmp_path / "bag", version=9)
    writer.set_compression(CompressionMode.MESSAGE, CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for each in arm(4):
            if each.topic not in connections:
                connections[each.topic] = writer.add_connection(each.topic, each.type, typestore=bags.STORE)
            writer.write(connections[each.topic], each.logged, each.raw)
    dataset, _ = imported(tmp_path, tmp_path / "bag")
    assert len(next(iter(dataset))) == 4


def test_several_bags_are_several_episodes_in_order(tmp_path):
    for number in (10, 9, 1):
        write(tmp_path / "day" / f"run_{number}", arm(number), "mcap" if number == 9 else "sqlite3")
    dataset, _ = imported(tmp_path, tmp_path / "day")
    assert [len(episode) for episode in dataset] == [1, 9, 10]


def test_numbered_files_are_one_bag(tmp_path):
    """A recorder that splits its files at a size has one recording."""
    sent = arm(10)
    for number, part in enumerate((sent[:30], sent[30:])):
        write_mcap(tmp_path / f"run_{number}.mcap", part)
    (tmp_path / "data").mkdir()
    (bag,) = bags_in(tmp_path)
    assert [path.name for path in bag.files] == ["run_0.mcap", "run_1.mcap"]
    assert len(bags_in(tmp_path)) == 1


def test_joints_are_sorted_by_name(tmp_path):
    sent = [
        state(k / 20, (k, 10 * k) if k % 2 else (10 * k, k), names=bags.JOINTS if k % 2 else bags.JOINTS[::-1])
        for k in range(9)
    ]
    sent += [command(k / 20 + 0.01, (k, k)) for k in range(8)]
    source = write(tmp_path / "bag", sent)
    dataset, _ = imported(tmp_path, source)
    np.testing.assert_array_equal(next(iter(dataset)).observations["joint_position"][:, 1], 10 * np.arange(9))
    unnamed = {"topic": "/joint_states"}
    with pytest.raises(DatasetError, match=r"changes its order(.|\n)*names: \[...\]"):
        reader(tmp_path, observations={"joint_position": unnamed}).read(source)


def test_poses_trajectories_and_twists(tmp_path):
    sent = [bags.pose(k / 10, (k, 0, 1), (0.1, 0.2, 0.3, 0.9)) for k in range(5)]
    sent += [bags.trajectory(k / 10 + 0.01, [(0, 0), (k, -k)], names=("elbow", "shoulder")) for k in range(4)]
    sent += [bags.twist(k / 10 + 0.02, (k, 0, 0), (0, 0, -k)) for k in range(4)]
    changes = {
        "rate": 10,
        "observations": {"hand": {"topic": "/hand"}, "where": {"topic": "/hand", "field": "pose.position", "unit": "m"}},
        "actions": [
            {"topic": "/arm/joint_trajectory", "names": ["shoulder", "elbow"]},
            {"topic": "/cmd_vel", "field": "angular.z"},
            {"topic": "/cmd_vel", "field": "linear"},
        ],
        "mode": "unknown",
    }
    dataset, notes = imported(tmp_path, write(tmp_path / "bag", sorted(sent, key=lambda each: each.at)), **changes)
    (episode,) = dataset
    np.testing.assert_allclose(episode.observations["hand"][2], [2, 0, 1, 0.9, 0.1, 0.2, 0.3], atol=1e-6)  # (w, x, y, z)
    assert dataset.spec.observation["where"].unit == "m" and episode.observations["where"].shape == (5, 3)
    np.testing.assert_allclose(physical(dataset, episode)[3], [-3, 3, -3, 3, 0, 0], atol=1e-4)
    assert dataset.spec.action.names[:2] == ("shoulder", "elbow") or dataset.spec.action.names[0] == "action_0"
    assert "declares no limits of actions" in notes


ENCODINGS = {
    "rgb8": lambda rgb: rgb,
    "bgr8": lambda rgb: rgb[..., ::-1],
    "rgba8": lambda rgb: np.concatenate([rgb, rgb[..., :1]], 2),
    "bgra8": lambda rgb: np.concatenate([rgb[..., ::-1], rgb[..., :1]], 2),
    "8UC3": lambda rgb: rgb[..., ::-1],
}


@pytest.mark.parametrize("kind", rest_slow(KINDS))
def test_pictures_are_rgb(tmp_path, kind):
    """Each encoding comes as RGB, whatever the padding of rows; pictures are the latest at each step."""
    drawn = np.random.default_rng(0).integers(0, 256, (5, 6, 8, 3), np.uint8)
    sent = [state(k / 20, (0, 0)) for k in range(9)] + [command(k / 20 + 0.01, (0, 0)) for k in range(8)]
    for encoding, of in ENCODINGS.items():
        sent += [image(k / 10, of(rgb), encoding, pad=3, topic=f"/{encoding}") for k, rgb in enumerate(drawn)]
    png = [cv2.imencode(".png", rgb[..., ::-1])[1].tobytes() for rgb in drawn]
    sent += [bags.compressed(k / 10, content, "png") for k, content in enumerate(png)]
    names = {**{f"camera_{name.lower()}": f"/{name}" for name in ENCODINGS}, "camera_png": "/camera/image_raw/compressed"}
    observations = {"joint_position": STATES} | {name: {"topic": topic} for name, topic in names.items()}
    source = write(tmp_path / "bag", sorted(sent, key=lambda each: each.at), kind)
    dataset, _ = imported(tmp_path, source, observations=observations)
    (episode,) = dataset
    for name in names:
        assert dataset.spec.observation[name].role == "image"
        np.testing.assert_array_equal(episode.observations[name], drawn[[0, 0, 1, 1, 2, 2, 3, 3, 4]], err_msg=name)


def test_pictures_are_scaled_and_grey_ones_have_three_channels(tmp_path):
    sent = [*arm(4), *(image(k / 20, np.full((8, 10), 9 * k), "mono8") for k in range(5))]
    camera = {"topic": "/camera/image_raw", "size": [4, 5]}
    dataset, _ = imported(tmp_path, write(tmp_path / "bag", sent), observations={"j": STATES, "camera": camera})
    assert next(iter(dataset)).observations["camera"].shape == (5, 4, 5, 3)
    assert next(iter(dataset)).observations["camera"][3, 0, 0].tolist() == [27, 27, 27]


def test_markers_success_and_reward(tmp_path):
    """Markers cut a bag into episodes; the success of each may come after its end."""
    sent = arm(60)
    sent += [
        bags.text(at, words) for at, words in ((0.5, "Start"), (1.0, "stop"), (1.5, "start"), (2.0, "stop"), (2.5, "start"))
    ]
    sent += [bags.truth(1.1, True), bags.truth(1.95, False)]
    sent += [command(k / 20, (0.5,), topic="/reward") for k in range(60)]
    changes = {
        "episodes": {"topic": "/episode", "begin": "start", "end": "stop"},
        "success": {"topic": "/success"},
        "reward": {"topic": "/reward"},
        "instruction": "pick",
    }
    dataset, notes = imported(tmp_path, write(tmp_path / "bag", sorted(sent, key=lambda each: each.at)), **changes)
    episodes = [*dataset]
    assert [len(episode) for episode in episodes] == [10, 10, 10]
    assert [episode.success for episode in episodes] == [True, False, None]
    np.testing.assert_allclose(episodes[0].observations["joint_position"][0, 0], 0.5, atol=1e-6)
    assert episodes[1].rewards.tolist() == [0.5] * 10 and episodes[0].instruction == "pick"
    assert "an episode has no end marker" in notes


def test_an_entry_counts_for_ever_with_an_infinite_gap(tmp_path):
    sent = sorted([*arm(20), command(0.0, (1,), topic="/gripper"), command(0.53, (2,), topic="/gripper")], key=lambda s: s.at)
    source = write(tmp_path / "bag", sent)
    with pytest.raises(DatasetError, match=r"has a gap(.|\n)*/gripper is silent(.|\n)*most_gap(.|\n)*\.inf"):
        reader(tmp_path, actions=[COMMANDS, {"topic": "/gripper"}]).read(source)
    dataset, _ = imported(tmp_path, source, actions=[COMMANDS, {"topic": "/gripper", "most_gap": float("inf")}])
    (episode,) = dataset
    np.testing.assert_allclose(physical(dataset, episode)[:, 2], [1] * 10 + [2] * 10, atol=1e-6)


def test_a_topic_that_stops_is_refused_or_ends_the_episode(tmp_path):
    sent = [each for each in arm(40) if each.topic == "/arm/commands" or each.at < 1.0]
    source = write(tmp_path / "bag", sent)
    with pytest.raises(DatasetError, match=r"has a gap(.|\n)*/joint_states is silent until the end, after 1\.20 s"):
        reader(tmp_path).read(source)
    dataset, notes = imported(tmp_path, source, gaps="cut")
    assert len(next(iter(dataset))) == 23
    assert "cut where a topic is silent for longer than 0.2 s: /joint_states: 1 of 1 episodes" in notes


def test_a_gap_in_the_middle(tmp_path):
    sent = [each for each in arm(40) if not 0.5 < each.at < 1.0]
    source = write(tmp_path / "bag", sent)
    with pytest.raises(DatasetError, match=r"(/joint_states|/arm/commands) is silent for 0\.\d+ s"):
        reader(tmp_path).read(source)
    dataset, _ = imported(tmp_path, source, most_gap=0.6)
    assert len(next(iter(dataset))) == 40


@pytest.mark.parametrize("kind", rest_slow(KINDS[::-1]))
def test_a_killed_recorder_leaves_a_bag(tmp_path, kind):
    """No end, no summary, no metadata.yaml, a write-ahead log: read as far as it goes, nothing is changed, and it is said."""
    source = tmp_path / f"run_0.{'mcap' if kind == 'mcap' else 'db3'}"
    script = [sys.executable, str(Path(__file__).parent / "bag_writer.py"), kind, str(source)]
    with subprocess.Popen(script, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"recorded\n"
        os.kill(process.pid, signal.SIGKILL)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("-shm")}
    dataset, notes = imported(tmp_path, source)
    assert len(next(iter(dataset))) >= 90
    assert ("has no end" if kind == "mcap" else "was not closed") in notes
    after = {name: (tmp_path / name).read_bytes() for name in before}
    assert after == before and (kind == "mcap" or f"{source.name}-wal" in before)


@given(share=st.floats(0.02, 0.999))
@settings(max_examples=12, deadline=None)
@pytest.mark.parametrize("kind", KINDS)
def test_a_torn_file_is_read_as_far_as_it_goes(tmp_path_factory, kind, share):
    """Cut anywhere, a file yields a beginning of its messages, or one error; never anything that was not in it."""
    folder = tmp_path_factory.mktemp("torn")
    source = write_mcap(folder / "run.mcap", arm(20), chunk_size=400) if kind == "mcap" else sqlite_file(folder / "run.db3")
    whole = [(raw.topic.name, raw.logged, raw.data) for raw in bags_in(source)[0].messages()]
    content = source.read_bytes()
    source.write_bytes(content[: int(len(content) * share)])
    damage: list[str] = []
    try:
        found = [(raw.topic.name, raw.logged, raw.data) for raw in bags_in(source)[0].messages(damage.append)]
    except DatasetError as error:
        assert kind == "sqlite3" or share < 0.05, error
        return
    assert damage and found == whole[: len(found)]


def sqlite_file(path: Path) -> Path:
    recorder = bags.SqliteRecorder(path)
    for each in arm(20):
        recorder.add(each)
    recorder.connection.execute("PRAGMA journal_mode=DELETE")
    recorder.connection.close()
    return path


@pytest.mark.slow
@given(name=st.sampled_from(["chunks.mcap", "plain.mcap", "run.db3"]), changes=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_bytes_are_read_or_refused(tmp_path, name, changes):
    """Whatever a byte becomes, there is no other error than ours; damaged lengths allocate nothing."""
    source = tmp_path / name
    if not source.exists():
        sqlite_file(source) if name == "run.db3" else write_mcap(
            source, arm(8), use_chunking=name == "chunks.mcap", chunk_size=600
        )
    content = bytearray(source.read_bytes())
    for _ in range(changes.draw(st.integers(1, 4))):
        content[changes.draw(st.integers(0, len(content) - 1))] = changes.draw(st.sampled_from([0, 1, 127, 255]))
    (tmp_path / f"changed{source.suffix}").write_bytes(content)
    with contextlib.suppress(DatasetError, UnknownName):
        [*reader(tmp_path, gaps="cut").read(tmp_path / f"changed{source.suffix}").recordings()]


def test_a_damaged_chunk_is_left_out(tmp_path):
    source = write_mcap(tmp_path / "run.mcap", arm(40), chunk_size=2000)
    content = bytearray(source.read_bytes())
    content[len(content) // 3] ^= 0xFF
    source.write_bytes(content)
    dataset, notes = imported(tmp_path, source, most_gap=2.0)
    assert "damaged" in notes and len(next(iter(dataset))) >= 20


def test_a_clock_that_runs_backward(tmp_path):
    """By a jump it is refused; by less than a gap, messages are left out and counted."""
    jumped = [state(k / 100, (0, 0), stamped=k / 100 - 3600 * (k > 50)) for k in range(101)]
    stamped = {"topic": "/joint_states", "field": "position", "names": ["shoulder", "elbow"]}
    source = write(tmp_path / "jumped", jumped)
    with pytest.raises(DatasetError, match=r"runs backward(.|\n)*3\d{3}\.\d+ s at message 51 of 101, by its header time"):
        reader(tmp_path, actions=[stamped]).read(source)
    dataset, _ = imported(tmp_path, source, actions=[stamped], clock="log")
    assert len(next(iter(dataset))) == 20
    swapped = [state(each.at, (0, 0), stamped=each.at - 0.05 * (index % 7 == 3)) for index, each in enumerate(jumped)]
    reading = reader(tmp_path, actions=[stamped]).read(write(tmp_path / "swapped", swapped))
    assert any("14 messages of /joint_states are not newer" in note for note in reading.notes)
    assert any("stamps of the headers (clock: header)" in note for note in reading.notes)


HOSTILE = {
    "nan": ([state(0.3, (np.nan, 0))], r"/joint_states holds NaN or infinity(.|\n)*at 0\.30 s, 1 steps"),
    "size": ([state(0.3, (1,), names=["shoulder"])], r"Message 31 of /joint_states(.|\n)*no joint 'elbow'"),
    "empty": ([state(0.3, ())], r"Message 31 of /joint_states(.|\n)*no numbers|no joint"),
    "twice": ([state(0.3, (0, 0), names=["shoulder", "shoulder"])], "names a joint twice"),
    "commands": ([command(0.3, (1, 2, 3))], r"changes its size(.|\n)*3 numbers"),
    "infinite": ([command(0.311, (np.inf, 0))], "/arm/commands holds NaN"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_numbers(tmp_path, name):
    added, words = HOSTILE[name]
    # behind the message of the same time, and at the very step that reads it
    sent = sorted([*arm(10), *added], key=lambda each: each.at)
    sent = [each for each in sent if each.at != 0.3 or each is added[0] or added[0].topic != each.topic or name != "nan"]
    with pytest.raises(DatasetError, match=words):
        reader(tmp_path).read(write(tmp_path / "bag", sent))


PICTURE = np.zeros((4, 4, 3), np.uint8)
BOMB = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (60_000).to_bytes(4) * 2 + b"\x08\x02\x00\x00\x00"
HOSTILE_PICTURES = {
    "depth": (image(0.0, PICTURE[..., :2], "16UC1"), r"unknown encoding(.|\n)*16UC1(.|\n)*rgb8"),
    "short": (image(0.0, PICTURE, data=np.zeros(7, np.uint8)), "not as many bytes as it declares"),
    "huge": (image(0.0, PICTURE, height=2**31, width=2**31), "not as many bytes as it declares"),
    "narrow": (image(0.0, PICTURE, step=3), "not as many bytes as it declares"),
    "none": (image(0.0, PICTURE, height=0, width=0, step=0, data=np.zeros(0, np.uint8)), "not as many bytes"),
    "jpeg": (bags.compressed(0.0, b"\xff\xd8\xff\xe0 no", topic="/camera/image_raw"), "no PNG and no JPEG"),
    "bomb": (bags.compressed(0.0, BOMB, "png", "/camera/image_raw"), "declares more than it may hold"),
    "compressed depth": (
        bags.compressed(0.0, b"x" * 40, "16UC1; compressedDepth png", topic="/camera/image_raw"),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_PICTURES)
def test_hostile_pictures(tmp_path, name):
    picture, words = HOSTILE_PICTURES[name]
    source = write_mcap(tmp_path / "run.mcap", sorted([*arm(4), picture], key=lambda each: each.at))
    with pytest.raises(DatasetError, match=words):
        reader(tmp_path, observations={"j": STATES, "camera": {"topic": "/camera/image_raw"}}).read(source)


def test_pictures_that_change_their_size(tmp_path):
    sent = [*arm(4), *(image(k / 20, np.zeros((4 + k, 4, 3))) for k in range(5))]
    observations = {"j": STATES, "camera": {"topic": "/camera/image_raw"}}
    source = write(tmp_path / "bag", sent)
    with pytest.raises(DatasetError, match=r"change their size(.|\n)*size: \[HEIGHT, WIDTH\]"):
        import_dataset(reader(tmp_path, observations=observations), source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_hostile_messages_and_definitions(tmp_path):
    """Bytes that are no message, and definitions that are no text of ROS."""
    cut = write_mcap(tmp_path / "cut.mcap", arm(2))
    recorder = bags.McapRecorder(tmp_path / "cut.mcap")
    for each in arm(2):
        recorder.add(each)
    number = recorder._channels["/joint_states"]
    for data in (b"", b"\x00\x01\x00\x00", b"\x00\x01\x00\x00" + b"\xff" * 64):
        recorder.writer.add_message(number, bags.BEGIN, data, bags.BEGIN)
    recorder.close()
    with pytest.raises(DatasetError, match="A message of /joint_states is damaged"):
        reader(tmp_path).read(cut)
    recorder = bags.McapRecorder(tmp_path / "odd.mcap")
    schema = recorder.writer.register_schema("pkg/msg/Odd", "ros2msg", b"float64 x = __import__('os').system('false')\n\x00[")
    channel = recorder.writer.register_channel("/joint_states", "cdr", schema)
    recorder.writer.add_message(channel, bags.BEGIN, b"\x00\x01\x00\x00" + bytes(8), bags.BEGIN)
    recorder.close()
    with pytest.raises(DatasetError, match=r"definition of pkg/msg/Odd cannot be read"):
        reader(tmp_path).read(tmp_path / "odd.mcap")


def test_json_messages(tmp_path):
    recorder = bags.McapRecorder(tmp_path / "run.mcap")
    schema = recorder.writer.register_schema("Arm", "jsonschema", b"{}")
    channel = recorder.writer.register_channel("/json", "json", schema)
    for each in arm(4):
        recorder.add(each)
    for k in range(5):
        recorder.writer.add_message(channel, bags.BEGIN + k * 50_000_000, b'{"pose": {"z": 3, "x": %d}}' % k, bags.BEGIN)
    recorder.close()
    observations = {"pose": {"topic": "/json", "field": "pose"}}
    dataset, _ = imported(tmp_path, tmp_path / "run.mcap", observations=observations)
    np.testing.assert_array_equal(next(iter(dataset)).observations["pose"], [[3, k] for k in range(5)])


def test_without_a_mapping_a_draft_is_printed_that_reads_the_bag(tmp_path):
    sent = [*arm(40), *(image(k / 10, np.zeros((4, 6, 3))) for k in range(21))]
    source = write(tmp_path / "bag", sorted(sent, key=lambda each: each.at))
    with pytest.raises(DatasetError) as caught:
        FORMAT.read(source)
    text = str(caught.value)
    assert "/joint_states  sensor_msgs/msg/JointState  201 messages  100.0 a second  shoulder, elbow" in text
    draft = text.partition("--mapping bag.yaml:\n\n")[2]
    assert yaml.safe_load(draft)["rate"] == 10
    (tmp_path / "draft.yaml").write_text(draft)
    foreign = with_mapping(FORMAT, tmp_path / "draft.yaml").read(source)
    assert {"camera_image_raw", "joint_states"} == {*foreign.observation} and foreign.actions.size == 2
    assert len(next(foreign.recordings())) == 20


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"rate": 0}, InvalidSetting, r"'rate' is out of range"),
        ({"observations": {"j": {"topic": "/joint_state"}}}, UnknownName, r"'/joint_state'(.|\n)*did you mean '/joint_states'"),
        ({"observations": {"j": {"topc": "/joint_states"}}}, UnknownName, "observations.j"),
        ({"observations": {"Joint.1": STATES}}, InvalidSetting, "no name of an observation"),
        ({"observations": {}}, InvalidSetting, "at least one"),
        ({"actions": [{**COMMANDS, "low": [0]}]}, InvalidSetting, "not one number for each"),
        (
            {"actions": [{"topic": "/joint_states", "field": "positions"}]},
            DatasetError,
            r"has no 'positions'(.|\n)*position, velocity",
        ),
        ({"clock": "header"}, DatasetError, r"/arm/commands(.|\n)*no header stamp(.|\n)*clock: log"),
        ({"episodes": {"topic": "/joint_states", "field": "header.frame_id"}}, DatasetError, "begins an episode"),
        ({"mode": "cartesian"}, InvalidSetting, "mode"),
        ({"observations": {"j": {**STATES, "names": ["shoulder", "wrist"]}}}, DatasetError, "no joint 'wrist'"),
    ],
)
def test_mappings_that_do_not_fit(tmp_path, changes, error, words):
    source = write(tmp_path / "bag", arm(4))
    with pytest.raises(error, match=words):
        reader(tmp_path, **changes).read(source)


def test_what_is_no_bag(tmp_path):
    (tmp_path / "a.mcap").write_bytes(b"")
    with pytest.raises(DatasetError, match="no MCAP and no SQLite file"):
        reader(tmp_path).read(tmp_path / "a.mcap")
    (tmp_path / "a.mcap").unlink()
    (tmp_path / "link.mcap").symlink_to("/etc/hostname")
    with pytest.raises(DatasetError, match="is a link"):
        reader(tmp_path).read(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="has no bags"):
        reader(tmp_path).read(tmp_path / "empty")
    assert not FORMAT.recognizes(tmp_path) and not FORMAT.recognizes(tmp_path / "nothing")


def test_bags_are_read_alone(tmp_path):
    with pytest.raises(InvalidSetting, match=r"rosbag is read alone(.|\n)*lerobot, minari"):
        writable(load("formats", "rosbag"))
    with pytest.raises(InvalidSetting, match="minari takes no mapping"):
        with_mapping(load("formats", "minari"), tmp_path / "bag.yaml")


TIMES = st.lists(st.integers(0, 120).map(lambda k: k * 25_000_000), min_size=2, max_size=60, unique=True).map(sorted)
"""[ns] of messages, many of them at the very time of a step."""


@given(
    times=TIMES,
    commands=TIMES,
    rate=st.sampled_from([5.0, 10.0, 20.0, 30.0]),
    limit=st.sampled_from([0.1, 0.5, np.inf]),
)
@settings(max_examples=60, deadline=None)
def test_resampling_never_reads_the_future_nor_the_stale(times, commands, rate, limit):
    """By brute force: every chosen message is the latest at or before its step, and not older than the limit."""
    signals = {"o": Signal("/o", np.array(times), limit), "a": Signal("/a", np.array(commands), limit, is_action=True)}
    try:
        steps = steps_between(signals, 0, 3 * 10**9, rate, cuts=True)
    except DatasetError:
        return
    assert len(steps.indices["o"]) == len(steps.ticks) == len(steps.indices["a"]) + 1 >= 2
    for tick, index in zip(steps.ticks, steps.indices["o"], strict=True):
        assert times[index] == max(time for time in times if time <= tick) and tick - times[index] <= limit * 1e9 + 2
    for tick, index in zip(steps.ticks[1:], steps.indices["a"], strict=True):
        assert commands[index] == max(time for time in commands if time < tick) and tick - commands[index] <= limit * 1e9 + 2
    np.testing.assert_allclose(np.diff(steps.ticks), 1e9 / rate, atol=1.5)
