"""Pictures that a dataset was asked to keep smaller: how near they stay, and what a hostile file gets."""

import hashlib
import io
import subprocess
import sys
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.packed_pictures import AV1, JPEG, packed, packing, unpacked
from robo_rl.errors import EpisodeCorrupt, InvalidSetting

SHAPE = (7, 64, 96, 3)


def film() -> np.ndarray:
    """A bright square that moves over a slope of colours."""
    rows, columns = np.mgrid[: SHAPE[1], : SHAPE[2]]
    pictures = np.stack([np.stack([rows * 3, columns * 2, 255 - rows - columns], -1)] * SHAPE[0]).astype(np.uint8)
    for index, picture in enumerate(pictures):
        picture[20:40, 8 * index : 8 * index + 20] = (250, 30, 30)
    return pictures


def packs(tmp_path: Path, spec, pictures: str) -> Dataset:
    return Dataset.create(tmp_path / pictures.replace(":", "-"), spec, {"pictures": pictures})


@pytest.mark.parametrize(("how", "error"), [(JPEG(), 1.0), (JPEG(50), 3.0), (AV1(), 4.0)], ids=str)
def test_pictures_stay_near_in_order_and_are_smaller(how, error):
    pictures = film()
    content, ends = packed(pictures, how)
    found = unpacked(how.name, content, ends, SHAPE)
    errors = np.abs(found[:, None].astype(float) - pictures[None]).mean((2, 3, 4))
    assert errors.diagonal().max() < error and (errors.argmin(1) == range(len(pictures))).all(), "no frame is another"
    assert content.nbytes < pictures.nbytes / 8
    assert np.array_equal(content, packed(pictures, how)[0]), "the same bytes every time"


def test_quality_decides_how_near():
    sizes = [packed(film(), how)[0].size for how in (JPEG(30), JPEG(95), AV1(60), AV1(10))]
    assert sizes[0] < sizes[1] and sizes[2] < sizes[3]


@pytest.mark.parametrize("words", ["png", "jpeg:0", "jpeg:101", "av1:64", "jpeg:", "jpeg:9.5", "", "JPEG"])
def test_what_means_no_packing_is_refused(words):
    with pytest.raises(InvalidSetting, match=r"exact, jpeg, av1|quality"):
        packing(words)


def test_everything_but_pictures_is_kept_exactly(tmp_path, spec, make_episode, same):
    dataset = packs(tmp_path, spec, "jpeg:80")
    written = make_episode(3)
    with dataset.writer() as writer:
        entry = writer.add(written)
    read = Dataset(dataset.path).read(entry)
    camera = read.observations["camera_wrist"]
    assert camera.shape == (6, 8, 6, 3) and not np.array_equal(camera, written.observations["camera_wrist"])
    restored = make_episode(3, observations={**written.observations, "camera_wrist": camera})
    assert same(read, restored)


def test_a_copy_loses_nothing_more(tmp_path, spec, make_episode):
    dataset = packs(tmp_path, spec, "jpeg")
    with dataset.writer() as writer:
        entries = [writer.add(make_episode(seed)) for seed in range(3)]
    assert dispatch(["data", "split", str(dataset.path), "--into.a", "0.67", "--into.b", "0.33"]) == 0
    copies = [path for part in "ab" for path in (tmp_path / f"{dataset.path.name}-{part}" / "episodes").iterdir()]
    assert {path.name: path.read_bytes() for path in copies} == {
        entry.file: (dataset.path / "episodes" / entry.file).read_bytes() for entry in entries
    }


@pytest.mark.slow
def test_recording_with_a_camera(tmp_path, capsys):
    command = [
        "record",
        "robo/ArmReach-v0",
        "--policy",
        "random",
        "--episodes",
        "1",
        "--environment.arguments.cameras",
        "[front]",
    ]
    for name, pictures in {"exact": [], "film": ["--pictures", "av1"], "jpeg": ["--pictures", "jpeg:90"]}.items():
        assert dispatch([*command, "--environment.arguments.image_size", "64", "--out", str(tmp_path / name), *pictures]) == 0
    exact, *others = (next(iter(Dataset(tmp_path / name))) for name in ("exact", "film", "jpeg"))
    for other in others:
        assert np.array_equal(other.actions, exact.actions)
        difference = np.abs(other.observations["camera_front"].astype(int) - exact.observations["camera_front"])
        assert 0 < difference.mean() < 4
    assert dispatch(["data", "info", str(tmp_path / "film")]) == 0
    assert "av1" in capsys.readouterr().out
    with pytest.raises(InvalidSetting, match="keeps all its pictures alike"):
        dispatch([*command, "--out", str(tmp_path / "film"), "--append", "--pictures", "av1"])


def declare_more_frames(content, ends, facts):
    facts["shape"] = (8, *SHAPE[1:])


def declare_other_size(content, ends, facts):
    facts["shape"] = (7, 64, 95, 3)


def declare_absurdly(content, ends, facts):
    facts["shape"] = (7, 64_000, 96_000, 3)


def name_another_codec(content, ends, facts):
    facts["name"] = "pickle"


def cut(content, ends, facts):
    facts["content"] = content[: content.size // 2]


def overlap(content, ends, facts):
    facts["ends"] = np.sort(np.r_[ends[:-2], ends[-1], ends[-1]]) if len(ends) > 1 else ends + 1
    facts["content"] = content if len(ends) > 1 else content[:40]


def lead_outside(content, ends, facts):
    facts["ends"] = np.r_[-5, ends[1:]] if len(ends) > 1 else ends
    facts["content"] = content if len(ends) > 1 else content[::-1].copy()


def huge_jpeg(content, ends, facts):
    """A picture of another size than declared: a decoder would take 12 GB for the largest."""
    small = cv2.imencode(".jpg", np.zeros((64, 96, 3), np.uint8))[1].tobytes()
    large = small.replace((64).to_bytes(2, "big") + (96).to_bytes(2, "big"), b"\xff\xff\xff\xff")
    assert large != small
    facts["content"], facts["ends"] = np.frombuffer(large * 7, np.uint8), np.cumsum([len(large)] * 7)
    facts["name"] = "jpeg"


def large_film(*, is_honest: bool) -> bytes:
    """A film of 1000 x 1000, which may say that it is one of 600 x 600 wherever it can be seen without decoding."""
    large, small = (bytearray(packed(np.zeros((2, size, size, 3), np.uint8), AV1())[0].tobytes()) for size in (1000, 600))
    for name, start, stop in [] if is_honest else [(b"av01", 28, 32), (b"av1C", 0, 22)]:
        place, other = (film.index(name, film.index(b"stsd")) for film in (large, small))
        large[place + start : place + stop] = small[other + start : other + stop]
    return bytes(large)


@pytest.mark.parametrize(
    ("is_honest", "shape", "words"),
    [(True, SHAPE, "film of a camera has another size"), (False, (2, 600, 600, 3), r"cannot be decoded(.|\n)*out of range")],
)
def test_a_film_of_another_size_is_not_decoded(is_honest, shape, words):
    """Of 8192 x 4320 a decoder takes 560 MB."""
    content = np.frombuffer(large_film(is_honest=is_honest), np.uint8)
    with pytest.raises(EpisodeCorrupt, match=words):
        unpacked("av1", content, np.asarray([content.size]), shape)


@pytest.mark.parametrize("how", [JPEG(), AV1()], ids=lambda how: how.name)
@pytest.mark.parametrize(
    "change",
    [declare_more_frames, declare_other_size, declare_absurdly, name_another_codec, cut, overlap, lead_outside, huge_jpeg],
    ids=lambda change: change.__name__,
)
def test_what_was_not_packed_so_is_refused(how, change):
    content, ends = packed(film(), how)
    facts = {"name": how.name, "content": content, "ends": ends, "shape": SHAPE}
    change(content, ends, facts)
    with pytest.raises(EpisodeCorrupt):
        unpacked(**facts)


def test_a_forged_file_says_what_is_wrong(tmp_path, spec, make_episode):
    dataset = packs(tmp_path, spec, "jpeg")
    with dataset.writer() as writer:
        entry = writer.add(make_episode(0))
    path = dataset.path / "episodes" / entry.file
    content = io.BytesIO(path.read_bytes())
    with h5py.File(content, "r+") as file:
        file["packed_ends/camera_wrist"][0] = 10**12
    digest = hashlib.sha256(content.getvalue()).hexdigest()[:16]
    path.unlink()
    forged = path.with_name(f"{entry.identity}.{digest}.h5")
    forged.write_bytes(content.getvalue())
    with pytest.raises(EpisodeCorrupt, match="not one after the other"):
        dataset.read(type(entry)(**{**entry.__dict__, "file": forged.name}))


ENCODES = {
    "dataset": "from robo_datasets.packed_pictures import AV1; AV1().pack(pictures)",
    "lerobot": "from robo_datasets.formats.lerobot_video import Film; Film(Path(sys.argv[1]), 20.0, 96, 96).add(pictures)",
}


@pytest.mark.slow
@pytest.mark.parametrize("encode", ENCODES)
def test_encoder_leaves_scheduling_ordinary(encode, tmp_path):
    """As root, SVT-AV1 gives the calling thread and its own the highest real-time priority: a robot's loop would wait."""
    code = f"""
import os, sys
from pathlib import Path
import numpy as np
pictures = np.zeros((4, 96, 96, 3), np.uint8)
{ENCODES[encode]}
print({{os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}} - {{os.SCHED_OTHER}})
"""
    command = [sys.executable, "-c", code, str(tmp_path / "film.mp4")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"
