"""Public sets: fetched from a server that cuts, lies or refuses, and made into datasets; the real files if they are here."""

import hashlib
import io
import json
import os
import pickle
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.public import sets
from robo_datasets.public.demonstrations import digest_of, read_demonstrations
from robo_datasets.public.driving_tub import CAMERA
from robo_datasets.public.fetching import fetch
from robo_datasets.public.sets import PublicFile, PublicSet, public_set, public_sets
from robo_rl.errors import DatasetError, UnknownName
from robo_rl.system.user_cache import user_cache
from robo_rl.types import ActionSource

CONTENT = bytes(range(256)) * 2000


class Server(BaseHTTPRequestHandler):
    """Serves `files`; cuts the first `cuts` answers after a third; ignores ranges if `forgets`."""

    files: dict[str, bytes]
    cuts: int
    forgets: bool
    asked: list[str | None]

    def do_GET(self) -> None:
        whole = self.files.get(self.path)
        if whole is None:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = 0 if wanted is None or self.forgets else int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start > len(whole):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(whole) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
        self.end_headers()
        rest = whole[start:]
        if type(self).cuts > 0:
            type(self).cuts -= 1
            rest = rest[: len(rest) // 3]
        with suppress(ConnectionError):  # a client that has enough
            self.wfile.write(rest)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[type[Server]]:
    kind = type("Served", (Server,), {"files": {}, "cuts": 0, "forgets": False, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as served:
        kind.base = f"http://127.0.0.1:{served.server_port}/"
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield kind
        served.shutdown()
        thread.join()


def of(server: type[Server], content: bytes = CONTENT, **changes: object) -> PublicSet:
    server.files["/part/a.bin"] = content
    file = PublicFile("part/a.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    facts = {"summary": "s", "source": "there", "base": server.base, "licence": "MIT", "files": (file,), **changes}
    return PublicSet(**facts)


def test_a_set_is_fetched_and_leaves_no_download(server):
    seen = []
    assert fetch("x", of(server), Path("out"), None, lambda file, done: seen.append((file, done))) == []
    assert Path("out/part/a.bin").read_bytes() == CONTENT and seen[-1] == (0, len(CONTENT))
    assert not (user_cache() / "public" / "x").exists()
    with pytest.raises(DatasetError, match="is there already"):
        fetch("x", of(server), Path("out"), None)


def test_a_cut_connection_is_resumed_in_one_call(server):
    server.cuts = 2
    fetch("x", of(server), Path("out"), None)
    third = len(CONTENT) // 3
    assert server.asked == [None, f"bytes={third}-", f"bytes={third + (len(CONTENT) - third) // 3}-"]
    assert Path("out/part/a.bin").read_bytes() == CONTENT


def test_a_later_call_goes_on_where_the_first_gave_up(server):
    server.cuts = 3
    with pytest.raises(DatasetError, match=r"did not arrive(.|\n)*in 3 attempts(.|\n)*the same command goes on there"):
        fetch("x", of(server), Path("out"), None)
    there = (user_cache() / "public" / "x" / "part" / "a.bin.part").stat().st_size
    assert 0 < there < len(CONTENT) and not Path("out").exists()
    fetch("x", of(server), Path("out"), None)
    assert server.asked[-1] == f"bytes={there}-" and Path("out/part/a.bin").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_it_again(server):
    server.cuts, server.forgets = 1, True
    fetch("x", of(server), Path("out"), None)
    assert Path("out/part/a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"!", CONTENT[:1000]], ids=["changed", "shorter"])
def test_another_content_is_refused_and_not_kept(server, content):
    with pytest.raises(DatasetError) as caught:
        fetch("x", of(server, content), Path("out"), None)
    assert "is not the file that the set lists" in str(caught.value) or "did not arrive" in str(caught.value)
    assert not Path("out").exists() and not (user_cache() / "public" / "x" / "part" / "a.bin").exists()


def test_a_longer_answer_is_not_taken_to_its_end(server):
    with pytest.raises(DatasetError, match=r"did not arrive(.|\n)*more than 512,000 bytes"):
        fetch("x", of(server, CONTENT * 40), Path("out"), None)


def test_a_part_of_another_file_is_found_by_its_hash(server):
    part = user_cache() / "public" / "x" / "part" / "a.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * 5000)
    with pytest.raises(DatasetError, match=r"is not the file that the set lists(.|\n)*sha256"):
        fetch("x", of(server), Path("out"), None)
    assert not part.exists()
    fetch("x", of(server), Path("out"), None)  # from the beginning
    assert Path("out/part/a.bin").read_bytes() == CONTENT


def test_a_missing_file_and_a_dead_server_are_named(server):
    with pytest.raises(DatasetError, match=r"cannot be fetched(.|\n)*HTTP 404(.|\n)*--from FOLDER"):
        fetch("x", of(server, base=f"{server.base}elsewhere/"), Path("out"), None)
    with pytest.raises(DatasetError, match=r"did not arrive(.|\n)*URLError"):
        fetch("x", of(server, base="http://127.0.0.1:9/"), Path("out"), None)
    with pytest.raises(DatasetError, match="A set is fetched by HTTP"):
        fetch("x", of(server, base="file:///etc/"), Path("out"), None)


def test_a_folder_stands_in_for_the_source(server):
    Path("mine").mkdir()
    with pytest.raises(DatasetError, match=r"mine lacks a file of x(.|\n)*mine/part/a.bin"):
        fetch("x", of(server), Path("out"), Path("mine"))
    Path("mine/a.bin").write_bytes(CONTENT + b"!")
    with pytest.raises(DatasetError, match="is not the file that the set lists"):
        fetch("x", of(server), Path("out"), Path("mine"))
    assert Path("mine/a.bin").exists()  # what is the user's is never removed
    Path("mine/a.bin").write_bytes(CONTENT)
    fetch("x", of(server), Path("out"), Path("mine"))
    assert Path("out/part/a.bin").read_bytes() == CONTENT and server.asked == []


# what sets become

ARRAYS = public_set("cs285-halfcheetah").arrays


def expert(steps: int = 6, limit: float = 1.5) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    seen = random.normal(size=(steps + 1, 17))
    action = random.uniform(-limit, limit, (steps, 6)).astype(np.float32)
    ends = np.arange(steps) == steps - 1
    arrays = (seen[:-1], action, random.normal(size=steps), seen[1:], ends)
    return [dict(zip(ARRAYS, arrays, strict=True))]


def test_a_pickle_and_its_arrays_have_one_digest(tmp_path):
    episodes = [*expert(), *expert(4)]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([each | {"image_obs": [], "more": np.zeros(3)} for each in episodes]))
    np.savez(tmp_path / "a.npz", **{f"{n}/{name}": values for n, each in enumerate(episodes) for name, values in each.items()})
    digests = {digest_of(read_demonstrations(tmp_path / name, ARRAYS)) for name in ("a.pkl", "a.npz")}
    assert len(digests) == 1
    episodes[1]["reward"][2] += 1e-3
    assert digest_of(episodes) not in digests


def test_a_pickle_of_experts_becomes_a_dataset(server):
    content = pickle.dumps(expert())
    file = PublicFile("e.pkl", 1 << 16, content=digest_of(expert()))
    server.files["/e.pkl"] = content
    notes = fetch("x", of(server, files=(file,), arrays=ARRAYS, becomes="cs285"), Path("out"), None)
    (episode,) = Dataset(Path("out"))
    np.testing.assert_array_equal(episode.policy_actions, expert()[0]["action"])
    np.testing.assert_array_equal(episode.actions, np.clip(expert()[0]["action"], -1, 1))
    np.testing.assert_allclose(episode.rewards, expert()[0]["reward"], rtol=1e-6)
    assert len(episode) == 6 and episode.truncated and not episode.terminated
    assert any("clipped" in note for note in notes) and Dataset(Path("out")).card["licence"] == "MIT"


def test_a_hostile_pickle_is_refused_by_its_content(server, tmp_path):
    class Running:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "touched"),)

    server.files["/e.pkl"] = pickle.dumps([Running()])
    file = PublicFile("e.pkl", 1 << 16, content="0" * 64)
    with pytest.raises(DatasetError, match=r"is not the file that the set lists(.|\n)*cannot be read"):
        fetch("x", of(server, files=(file,), arrays=ARRAYS, becomes="cs285"), Path("out"), None)
    assert not (tmp_path / "touched").exists()


def tub(frames: int = 230, member: str = "tub/images/{}.jpg") -> bytes:
    """Return an archive whose pictures grow brighter, with the steering of their number."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as archive:

        def add(name: str, content: bytes) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))

        lines = []
        for number in range(frames):
            coded = cv2.imencode(".jpg", np.full((120, 160, 3), number, np.uint8))[1].tobytes()
            add(member.format(number), coded)
            row = {"_index": number, "cam/image_array": f"{number}.jpg", "user/angle": number / 1000, "user/throttle": 0.5}
            lines.append(json.dumps(row | {"user/mode": "user"}))
        add("tub/catalog_0.catalog", "\n".join(reversed(lines)).encode())
        add("tub/._catalog_0.catalog", b"\x00")
    return found.getvalue()


def test_a_drive_becomes_pieces_in_order(server):
    server.files["/t.tar.gz"] = content = tub()
    file = PublicFile("t.tar.gz", len(content), hashlib.sha256(content).hexdigest())
    fetch("x", of(server, files=(file,), becomes="donkeycar"), Path("out"), None)
    dataset = Dataset(Path("out"))
    episodes = list(dataset)
    assert [len(each) for each in episodes] == [100, 100, 29]  # the last picture has no next one
    steering = np.concatenate([each.actions[:, 0] for each in episodes])
    np.testing.assert_allclose(steering, np.arange(229) / 1000, atol=1e-6)
    np.testing.assert_allclose(episodes[1].observations[CAMERA][3].mean(), 103, atol=2)
    np.testing.assert_array_equal(episodes[0].observations[CAMERA][-1], episodes[1].observations[CAMERA][0])


DAMAGED = {"empty": b"", "text": b"text", "cut": tub(3)[:-40], "without pictures": tub(3, "tub/../{}.png")}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_drive_is_refused(server, content):
    server.files["/t.tar.gz"] = content
    file = PublicFile("t.tar.gz", max(len(content), 1), hashlib.sha256(content).hexdigest())
    with pytest.raises(DatasetError, match=r"no tub of Donkeycar|did not arrive"):
        fetch("x", of(server, files=(file,), becomes="donkeycar"), Path("out"), None)
    assert not Path("out").exists()


# the list


def test_every_listed_set_says_what_it_is():
    for name, each in public_sets().items():
        assert each.members and all(bool(member.sha256) != bool(member.content) for member in each.members), name
        assert each.base.startswith("https://") and each.licence
        assert len({member.path for member in each.members}) == len(each.members)
        assert all(".." not in Path(member.path).parts and not member.path.startswith("/") for member in each.members)
    with pytest.raises(UnknownName, match="Unknown public set 'zoo-agent'"):
        public_set("zoo-agent")


def test_the_command_shows_licence_and_hash_first(server, monkeypatch, capsys):
    monkeypatch.setattr(sets, "public_sets", lambda: {"mine": of(server)})
    assert dispatch(["data", "get", "mine"]) == 0
    page = capsys.readouterr().out
    assert page.index("licence  MIT") < page.index("mine is in data/mine")
    assert hashlib.sha256(CONTENT).hexdigest() in page and "size     0.5 MB in 1 file" in page
    assert Path("data/mine/part/a.bin").read_bytes() == CONTENT


def reference(folder: str) -> Path:
    found = os.environ.get("ROBO_RL_REFERENCE_DATA")
    if not found:
        pytest.skip(f"ROBO_RL_REFERENCE_DATA names no folder with {folder}/, the files of public sets")
    return Path(found) / folder


@pytest.mark.parametrize(
    ("name", "folder"), [("zoo-agents", "zoo"), ("dreamer-scores", "scores"), ("tdmpc2-scores", "scores/tdmpc2")]
)
def test_the_real_files_have_the_listed_hashes(name, folder):
    fetch(name, public_set(name), Path("out"), reference(folder))
    assert sum(path.is_file() for path in Path("out").rglob("*")) == len(public_set(name).members)


@pytest.mark.slow
def test_the_real_drive_and_experts_become_datasets():
    for name, folder, episodes in (("donkeycar", "driving", 10), ("cs285-halfcheetah", "experts", 2)):
        fetch(name, public_set(name), Path(name), reference(folder))
        assert len(Dataset(Path(name))) == episodes
    assert [round(entry.episode_return) for entry in Dataset(Path("cs285-halfcheetah")).entries()] == [4068, 4002]


@pytest.mark.slow
def test_human_demonstrations_replay_close_to_the_file():
    name = "adroit-door-human"
    notes = fetch(name, public_set(name), Path("out"), reference("human"))
    dataset = Dataset(Path("out"))
    sources = Counter(int(source) for episode in dataset for source in episode.sources)
    assert len(dataset) == 25 and set(sources) == {ActionSource.HUMAN}
    assert sum(bool(entry.success) for entry in dataset.entries()) >= 7  # as in the file
    first = next(iter(dataset))
    there = read_demonstrations(reference("human") / "adroit_door_25.npz", public_set(name).arrays)[0]
    np.testing.assert_allclose(first.policy_actions, there["actions"], atol=1e-6)
    assert np.abs(first.actions).max() == 1 < np.abs(first.policy_actions).max()
    assert np.abs(first.observations["door_position"][:-1, 0] - there["observations"][:, 28]).max() < 0.1
    assert any("82%" in note for note in notes)
