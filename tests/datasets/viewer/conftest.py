"""A server on a free port, and a client that asks it as a browser would."""

import json
from http.client import HTTPConnection

import numpy as np
import pytest

from robo_datasets.labels import LabelSet
from robo_datasets.viewer.server import viewer_server
from robo_rl.system.pages.server import TOKEN_HEADER
from robo_rl.types import RewardLabels


class Client:
    """Asks one server; `host` and further headers may be set as an attacker would."""

    def __init__(self, server):
        self.server = server
        self.address = f"127.0.0.1:{server.port}"
        self.own = {"Origin": f"http://{self.address}", TOKEN_HEADER: server.token}

    def ask(self, path, *, method="GET", body=None, host=None, headers=()):
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name in [self.address] if host is None else [host] if isinstance(host, str) else host:
                connection.putheader("Host", name)
            sized = {} if body is None else {"Content-Length": str(len(body))}
            for name, value in (sized | dict(headers)).items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path, status=200):
        got, _, body = self.ask(path)
        assert got == status, body
        return json.loads(body, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    def note(self, identity, body, headers=None):
        path, headers = f"/api/episodes/{identity}/notes", self.own if headers is None else headers
        status, _, answer = self.ask(path, method="POST", body=body, headers=headers)
        return status, json.loads(answer)


@pytest.fixture
def serve():
    """Returns a function that serves a dataset and returns its client."""
    running = []

    def start(dataset):
        running.append(viewer_server(dataset, 0))
        return Client(running[-1])

    yield start
    for server in running:
        server.close()


@pytest.fixture
def filled(dataset, make_episode):
    """A dataset of two episodes; the first with a person at steps 1 and 2, a note, and labels of which two are missing."""
    sources = np.array([0, 1, 1, 3, 0], np.int8)
    with dataset.writer() as writer:
        metadata = {"source": "run 7", "latency": float("nan"), "limit": float("inf")}
        first = writer.add(make_episode(0, sources=sources, metadata=metadata, costs=np.ones(5, np.float32), success=True))
        writer.add(make_episode(1, steps=4, terminated=True, truncated=False, stop_reason="goal"))
    values, valid = np.array([0.1, 9, 0.3, 9, 0.5], np.float32), np.array([1, 0, 1, 0, 1], bool)
    LabelSet(dataset, "progress").add(first.identity, RewardLabels(values, valid, "m", "w", "p", np.full(5, 0.9, np.float32)))
    dataset.catalogue.note(first.identity, "look at <b>this</b>")
    return dataset
