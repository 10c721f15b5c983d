"""The page's server: it shows what was recorded, says what is damaged, and answers to nobody but its own page."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import cv2
import numpy as np
import pytest

from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_datasets.viewer.reading import KEPT, LONGEST_NOTE, Reader
from robo_datasets.viewer.server import viewer_server
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.system.pages.server import HEADERS, LARGEST_BODY, TOKEN_HEADER
from robo_rl.types import RewardLabels

UNKNOWN = "0" * 32


def first_of(dataset) -> str:
    return dataset.entries()[0].identity


def numbers(client, identity, key) -> np.ndarray:
    status, headers, body = client.ask(f"/api/episodes/{identity}/signals?key={key}")
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream"), body
    return np.frombuffer(body, "<f4")


# what is shown


def test_the_page_needs_nothing_from_elsewhere(filled, serve):
    client = serve(filled)
    for path, kind in {"/": "html", "/page.js": "javascript", "/page.css": "css", "/style.css": "css"}.items():
        status, headers, body = client.ask(path)
        assert status == 200 and kind in headers["Content-Type"]
        assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"
        assert re.findall(rb"https?://", body) == [] and b"innerHTML" not in body
        assert (client.server.token.encode() in body) == (path == "/")


def test_the_list(filled, serve):
    shown = serve(filled).json("/api/dataset")
    assert [episode["steps"] for episode in shown["episodes"]] == [5, 4]
    assert [episode["success"] for episode in shown["episodes"]] == [True, None]
    assert shown["label_sets"] == {"progress": 1}
    assert shown["notes"] == {first_of(filled): 1}
    assert shown["card"] == {"how": "by hand"} and shown["can_note"] is True


def test_an_episode_with_interventions_labels_and_a_note(filled, serve):
    shown = serve(filled).json(f"/api/episodes/{first_of(filled)}")
    assert shown["entry"]["stop_reason"] == "time_limit" and shown["entry"]["truncated"] and not shown["entry"]["terminated"]
    assert shown["interventions"] == [[1, 3]]
    assert shown["actors"] == {"policy": 2, "human": 2, "guard": 1}
    assert shown["cameras"] == [{"name": "camera_wrist", "height": 8, "width": 6}]
    assert shown["notes"] == ["look at <b>this</b>"]
    assert shown["metadata"]["latency"] == "NaN" and shown["metadata"]["limit"] == "Infinity"
    (labels,) = shown["labels"]
    assert (labels["steps"], labels["missing"], labels["model"]) == (5, 2, "m")
    keys = [signal["key"] for signal in shown["signals"]]
    assert keys[:5] == [
        "observations/joint_position",
        "actions/executed",
        "actions/proposed",
        "rewards/reward",
        "reward_terms/reach",
    ]
    assert keys[5:] == ["costs/cost", "sources/source", "timestamps/seconds", "labels/progress", "confidence/progress"]
    position, executed = shown["signals"][:2]
    assert (position["rows"], position["columns"], position["unit"]) == (6, ["0", "1", "2"], "rad")
    assert (executed["rows"], executed["columns"]) == (5, ["x", "y"])


def test_an_episode_that_a_label_set_does_not_know(filled, serve):
    other = filled.entries()[1].identity
    client = serve(filled)
    shown = client.json(f"/api/episodes/{other}")
    assert shown["labels"] == [{"name": "progress", "steps": 0, "missing": None}]
    assert shown["entry"]["terminated"] and not shown["entry"]["truncated"]
    assert "Unknown signal 'labels/progress'" in client.json(f"/api/episodes/{other}/signals?key=labels/progress", 404)["error"]


def test_signals_are_the_recorded_numbers(filled, serve):
    client, identity = serve(filled), first_of(filled)
    episode = filled.read(filled.entries()[0])
    assert (
        episode.observations["joint_position"] == numbers(client, identity, "observations/joint_position").reshape(3, 6).T
    ).all()
    assert (episode.actions == numbers(client, identity, "actions/executed").reshape(2, 5).T).all()
    assert (episode.policy_actions == numbers(client, identity, "actions/proposed").reshape(2, 5).T).all()
    assert (numbers(client, identity, "sources/source") == episode.sources).all()
    np.testing.assert_array_equal(numbers(client, identity, "reward_terms/reach"), episode.reward_terms["reach"])
    np.testing.assert_allclose(
        numbers(client, identity, "timestamps/seconds"), episode.timestamps - episode.timestamps[0], 1e-6
    )


@pytest.mark.parametrize(
    ("environment", "is_simulated"),
    [("robo/ArmPick-v0", True), ("robot:http://127.0.0.1:5000", False), ("robot/Fake-v0", False), (None, False)],
)
def test_time_of_a_simulation_is_simulated_time(filled, serve, environment, is_simulated):
    filled.describe({} if environment is None else {"environment": environment})
    episode = filled.read(filled.entries()[0])
    clock = episode.timestamps - episode.timestamps[0]
    expected = np.arange(len(episode) + 1) * 0.05 if is_simulated else clock
    assert abs(clock - np.arange(len(episode) + 1) * 0.05).max() > 1e-3
    np.testing.assert_allclose(numbers(serve(filled), first_of(filled), "timestamps/seconds"), expected, 1e-5)


def test_a_missing_label_is_not_a_number(filled, serve):
    labels = numbers(serve(filled), first_of(filled), "labels/progress")
    np.testing.assert_array_equal(labels, np.array([0.1, np.nan, 0.3, np.nan, 0.5], np.float32))


def test_pictures_are_exact(filled, serve):
    client, identity = serve(filled), first_of(filled)
    recorded = filled.read(filled.entries()[0]).observations["camera_wrist"]
    for index in (0, 5):
        status, headers, body = client.ask(f"/api/episodes/{identity}/cameras/camera_wrist/{index}")
        assert (status, headers["Content-Type"]) == (200, "image/png")
        shown = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
        assert (shown == recorded[index]).all()


def test_discrete_actions_grey_pictures_and_wide_signals(tmp_path, serve, make_episode):
    arrays = (ArraySpec("camera", (4, 4, 1), "uint8", 0, 255, role="image"), ArraySpec("depth", (30, 30), role="image"))
    observation = ObservationSpec((*arrays, ArraySpec("grid", (2, 2), "uint8")))
    spec = EnvironmentSpec("test/Grid-v0", observation, ActionSpec(("left", "right"), mode="discrete"))
    values = {
        name: np.arange(6 * np.prod(array.shape)).reshape(6, *array.shape).astype(array.dtype)
        for name, array in observation.items()
    }
    choices = np.array([0, 1, 1, 0, 1])
    dataset = Dataset.create(tmp_path / "grid", spec)
    with dataset.writer() as writer:
        changes = {"observations": values, "actions": choices, "policy_actions": choices, "spec_fingerprint": spec.fingerprint}
        identity = writer.add(make_episode(0, **changes)).identity
    client = serve(dataset)
    shown = client.json(f"/api/episodes/{identity}")
    drawn = {signal["name"]: (signal["columns"], signal["drawn"]) for signal in shown["signals"]}
    assert [camera["name"] for camera in shown["cameras"]] == ["camera"]
    assert drawn["executed"] == (["choice"], True) and drawn["grid"] == (["0,0", "0,1", "1,0", "1,1"], True)
    assert drawn["depth"] == ([""], False)
    assert numbers(client, identity, "actions/executed").tolist() == choices.tolist()
    _, _, body = client.ask(f"/api/episodes/{identity}/cameras/camera/2")
    assert (cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_GRAYSCALE) == values["camera"][2, ..., 0]).all()


def test_an_empty_dataset(dataset, serve):
    shown = serve(dataset).json("/api/dataset")
    assert (shown["episodes"], shown["notes"], shown["label_sets"]) == ([], {}, {})


# damage


def test_a_damaged_episode_says_so_and_the_others_are_shown(filled, serve):
    broken, whole = filled.entries()
    os.truncate(filled.path / "episodes" / broken.file, 999)
    filled.catalogue.note(broken.identity, "odd")
    client = serve(filled)
    assert len(client.json("/api/dataset")["episodes"]) == 2
    shown = client.json(f"/api/episodes/{broken.identity}")
    assert "was changed after it was written, or is torn" in shown["error"] and "signals" not in shown
    assert shown["entry"]["seed"] == 0 and shown["notes"] == ["look at <b>this</b>", "odd"]
    for rest in ("signals?key=rewards/reward", "cameras/camera_wrist/0"):
        assert "cannot be read" in client.json(f"/api/episodes/{broken.identity}/{rest}", 500)["error"]
    assert "error" not in client.json(f"/api/episodes/{whole.identity}")


def test_an_episode_without_its_file(filled, serve):
    entry = filled.entries()[0]
    (filled.path / "episodes" / entry.file).unlink()
    assert "There is no" in serve(filled).json(f"/api/episodes/{entry.identity}")["error"]


def test_damaged_label_sets_do_not_hide_the_episode(filled, serve):
    identity = first_of(filled)
    (filled.path / "labels" / "rubbish.sqlite").write_bytes(b"no database at all" * 99)
    (filled.path / "labels" / "No Name.sqlite").write_bytes(b"")
    client = serve(filled)
    covered = client.json("/api/dataset")["label_sets"]
    assert covered["progress"] == 1 and "cannot be used" in covered["rubbish"] and "impossible name" in covered["No Name"]
    shown = client.json(f"/api/episodes/{identity}")
    found = {labels["name"]: labels.get("error", "") for labels in shown["labels"]}
    assert found["progress"] == "" and "cannot be used" in found["rubbish"] and "impossible name" in found["No Name"]


def test_a_damaged_catalogue_is_said_on_the_page(filled, serve):
    (filled.path / "catalogue.sqlite").write_bytes(b"no database at all" * 99)
    client = serve(filled)
    assert client.ask("/")[0] == 200
    assert "robo-rl data repair" in client.json("/api/dataset", 500)["error"]


def test_a_fault_that_nobody_foresaw_ends_one_request_only(filled, serve, monkeypatch, capsys):
    client = serve(filled)
    with monkeypatch.context() as patch:
        patch.setattr(Reader, "overview", lambda reader: 1 // 0)
        assert "ZeroDivisionError" in client.json("/api/dataset", 500)["error"]
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert len(client.json("/api/dataset")["episodes"]) == 2


# notes


def test_a_note_is_kept(filled, serve):
    client, identity = serve(filled), filled.entries()[1].identity
    assert client.note(identity, json.dumps({"text": "  ein Würfel 🧊\n"}).encode()) == (200, {"notes": ["ein Würfel 🧊"]})
    assert Dataset(filled.path).catalogue.notes(identity) == ["ein Würfel 🧊"]
    assert client.json("/api/dataset")["notes"][identity] == 1


NO_NOTES = (
    (b"", 400, "A note is JSON"),
    (b"[1]", 400, "A note is JSON"),
    (b'{"text": 3}', 400, "A note is JSON"),
    (b"[" * 20_000, 400, "A note is JSON"),
    (b"\xff\xfe", 400, "A note is JSON"),
    (b'{"text": "  "}', 400, "A note is not a text"),
    (b'{"text": "\\ud800"}', 400, "A note is not a text"),
    (json.dumps({"text": "x" * (LONGEST_NOTE + 1)}).encode(), 400, "A note is not a text"),
    (b"x" * (LARGEST_BODY + 1), 413, "has at most"),
)


def test_what_is_no_note(filled, serve):
    client, identity = serve(filled), first_of(filled)
    for body, status, message in NO_NOTES:
        got, answer = client.note(identity, body)
        assert got == status and message in answer["error"], body[:40]
    assert len(filled.catalogue.notes(identity)) == 1


def test_notes_of_what_is_not_there(filled, serve):
    client = serve(filled)
    assert client.note(UNKNOWN, b'{"text": "x"}')[0] == 404
    assert client.ask("/api/dataset", method="POST", body=b"{}", headers=client.own)[0] == 404


def test_no_note_while_another_process_writes(filled, serve):
    client = serve(filled)
    with filled.writer():
        status, answer = client.note(first_of(filled), b'{"text": "x"}')
    assert status == 409 and "Another process is writing" in answer["error"]


def test_many_notes_at_once_are_all_kept(filled, serve):
    client, identity = serve(filled), filled.entries()[1].identity
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda text: client.note(identity, json.dumps({"text": text}).encode()), "abcdefgh")]
    assert {status for status, _ in answers} == {200}
    assert sorted(filled.catalogue.notes(identity)) == [*"abcdefgh"]


def test_a_folder_that_may_only_be_read(filled, serve, monkeypatch):
    may, open_file = os.access, Path.open

    def refuse(path, mode="r", *args, **kwargs):  # root may write anywhere, so that the folder's mode would not do
        if path.name == "lock":
            raise PermissionError(13, "Permission denied")
        return open_file(path, mode, *args, **kwargs)

    monkeypatch.setattr(os, "access", lambda path, mode, **more: not mode & os.W_OK and may(path, mode, **more))
    monkeypatch.setattr(Path, "open", refuse)
    client, identity = serve(filled), first_of(filled)
    assert client.json("/api/dataset")["can_note"] is False
    assert client.json(f"/api/episodes/{identity}")["notes"] == ["look at <b>this</b>"]
    assert len(numbers(client, identity, "rewards/reward")) == 5
    status, answer = client.note(identity, b'{"text": "x"}')
    assert status == 500 and "cannot be written to" in answer["error"]


# who may ask, and for what


HOSTILE = (UNKNOWN, "0" * 31, "A" * 32, "..%2f..%2fetc", "%00" * 32, "%d9%a0" * 32, "../" * 9 + "etc/passwd")
NOT_THERE = (
    "/signals?key=observations/../../dataset.json",
    "/signals?key=labels/../catalogue",
    "/signals?key=labels/nothing",
    "/signals?key=confidence/%2e%2e",
    "/signals",
    "/cameras/joint_position/0",
    "/cameras/../0",
    "/cameras/camera_wrist/6",
    "/cameras/camera_wrist/-1",
    "/cameras/camera_wrist/0/..",
    "/notes",
    "/",
)
NO_PAGES = ("/reading.py", "/page.js/../reading.py", "//etc/passwd", "/dataset.json", "/%2e%2e/dataset.json", "page.js")
FOREIGN = ("evil.example", "evil.example:8642", "127.0.0.1.evil.example", "localhost.evil.example:1", "", ())


@pytest.mark.parametrize("rest", ["", "/signals?key=rewards/reward", "/cameras/camera_wrist/0"])
def test_hostile_identities(filled, serve, rest):
    client = serve(filled)
    for identity in HOSTILE:
        status, _, body = client.ask(f"/api/episodes/{identity}{rest}")
        assert status == 404 and "no such" in json.loads(body)["error"], identity


def test_what_an_episode_does_not_have(filled, serve):
    client = serve(filled)
    for path in NOT_THERE:
        assert "error" in client.json(f"/api/episodes/{first_of(filled)}{path}", 404), path


def test_no_file_is_served_but_the_page(filled, serve):
    client = serve(filled)
    assert {path: client.ask(path)[0] for path in NO_PAGES} == dict.fromkeys(NO_PAGES, 404)


def test_a_foreign_name_for_this_machine_is_refused(filled, serve):
    client = serve(filled)
    for host in FOREIGN:
        for path in ("/", "/page.js", "/api/dataset"):
            status, _, body = client.ask(path, host=host)
            named = "This page has the address" if host else ""  # HTTP itself refuses a request without a host
            assert status == (403 if host != () else 400) and named in json.loads(body)["error"], (host, path)
        status, _, _ = client.ask("/api/dataset", method="POST", body=b"{}", host=host, headers=client.own)
        assert status == (403 if host != () else 400), host


def test_two_names_are_refused(filled, serve):
    client = serve(filled)
    assert client.ask("/", host=(client.address, "evil.example"))[0] == 400


def test_a_forwarded_port_is_fine(filled, serve):
    client = serve(filled)
    assert [client.ask("/api/dataset", host=host)[0] for host in ("localhost", "localhost:9999", "127.0.0.1:1")] == [200] * 3


def test_another_page_may_not_write(filled, serve):
    client, identity = serve(filled), first_of(filled)
    own = client.address
    for origin in (None, "null", "http://evil.example", "http://127.0.0.1:1", f"https://{own}", f"http://{own}.evil"):
        headers = {TOKEN_HEADER: client.server.token} | ({} if origin is None else {"Origin": origin})
        status, answer = client.note(identity, b'{"text": "x"}', headers)
        assert status == 403 and "Only this page may write" in answer["error"], origin
    assert len(filled.catalogue.notes(identity)) == 1


def test_a_page_without_the_token_may_not_write(filled, serve):
    client, identity = serve(filled), first_of(filled)
    for token in (None, "", "x" * 32, "é"):
        headers = {"Origin": client.own["Origin"]} | ({} if token is None else {TOKEN_HEADER: token})
        status, answer = client.note(identity, b'{"text": "x"}', headers)
        assert status == 403 and "load the page again" in answer["error"], token
    assert len(filled.catalogue.notes(identity)) == 1


def test_other_methods_are_not_known(filled, serve):
    client = serve(filled)
    assert [client.ask("/", method=method)[0] for method in ("PUT", "DELETE", "OPTIONS", "PATCH")] == [501] * 4


# the server itself


def test_only_this_machine_is_served(filled, serve):
    server = serve(filled).server
    assert server._listener.getsockname()[0] == "127.0.0.1" and server.url == f"http://127.0.0.1:{server.port}/"


@pytest.mark.parametrize("port", [None, 70_000])
def test_a_port_that_cannot_be_had(filled, serve, port):
    taken = serve(filled).server.port
    with pytest.raises(InvalidSetting, match=r"cannot be used(.|\n)*--port 0 takes any free one"):
        viewer_server(filled, taken if port is None else port)


def test_an_episode_is_read_once_and_few_are_kept(dataset, make_episode, monkeypatch):
    with dataset.writer() as writer:
        identities = [writer.add(make_episode(seed)).identity for seed in range(KEPT + 1)]
    read, calls, lock = Dataset.read, [], threading.Lock()

    def counted(self, entry):
        with lock:
            calls.append(entry.identity)
        return read(self, entry)

    monkeypatch.setattr(Dataset, "read", counted)
    reader = Reader(dataset)
    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(lambda _: reader.picture(identities[0], "camera_wrist", 0), range(8))}) == 1
    assert calls == identities[:1]
    for identity in identities:
        reader.describe(identity)
    assert len(reader._kept) == KEPT and len(calls) == KEPT + 1


def test_labels_that_come_later_are_shown(filled, serve):
    client, identity = serve(filled), first_of(filled)
    client.json(f"/api/episodes/{identity}")
    later = RewardLabels(np.zeros(5, np.float32), np.ones(5, bool), "m", "w", "p")
    LabelSet(filled, "later").add(identity, later)
    assert {labels["name"] for labels in client.json(f"/api/episodes/{identity}")["labels"]} == {"later", "progress"}
    assert numbers(client, identity, "labels/later").tolist() == [0.0] * 5


def test_the_page_is_part_of_the_package():
    assert {"page.html", "page.css", "page.js"} <= {path.name for path in files("robo_datasets.viewer").iterdir()}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
        (b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
        (b"GET / HTTP/7.1\r\nHost: localhost\r\n\r\n", 505),
        (b"GET http://[bad/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        (b"POST http://[bad/ HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nX-Robo-Token: @\r\n\r\n", 404),
    ],
)
def test_requests_that_http_refuses_have_the_same_headers(filled, serve, request_, status, capfd):
    client = serve(filled)
    with socket.create_connection(("127.0.0.1", client.server.port), 30) as link:
        link.sendall(request_.replace(b"@", client.server.token.encode()))
        link.shutdown(socket.SHUT_WR)
        answer = b""
        while part := link.recv(1 << 16):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first.split()[1] == str(status) and headers | HEADERS == headers
    assert headers["content-type"] == "application/json" and headers["cache-control"] == "no-store"
    assert ("error" in json.loads(body)) if not request_.startswith(b"HEAD") else body == b""
    assert "Traceback" not in capfd.readouterr().err
