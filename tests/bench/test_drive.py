"""The bench of ticks, beside highway-env where it is installed."""

import pytest

pytest.importorskip("msgpack")

from robo_bench import drive
from robo_bench.measurement import Effort, timed


def test_cases_say_where_their_peer_is_missing(monkeypatch):
    def names(installed: bool) -> list[str]:
        monkeypatch.setattr(drive, "highway_env_is_installed", lambda: installed)
        return [case.name for case in drive.cases(Effort()) if "highway" in case.name]

    assert not any("not installed" in name for name in names(True))
    assert len(names(False)) == 4 and all("highway-env is not installed" in name for name in names(False))


@pytest.mark.parametrize("picture", [0, 20])
def test_the_peer_drives(picture):
    pytest.importorskip("highway_env", reason="in .venv-bench alone")
    peer = drive.Motorway(3, picture, 20)
    found = timed(peer.frame, 0.2, peer.begin)
    peer.close()
    assert found.units > 2 and found.busy > 0 and len(peer.environment.road.vehicles) == 4
