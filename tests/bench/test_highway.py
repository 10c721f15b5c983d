"""The bench of ticks, beside highway-env where it is installed."""

import pytest

pytest.importorskip("msgpack")

from robo_bench import drive_ticks, highway
from robo_bench.measurement import Effort


def test_cases_say_where_their_peer_is_missing(monkeypatch):
    def names(installed: bool) -> list[str]:
        monkeypatch.setattr(highway, "is_installed", lambda: installed)
        return [name for name in drive_ticks.cases(Effort()) if "highway" in name]

    assert not any("not installed" in name for name in names(True))
    assert len(names(False)) == 4 and all("highway-env is not installed" in name for name in names(False))


@pytest.mark.parametrize("picture", [0, 20])
def test_the_peer_drives(picture):
    pytest.importorskip("highway_env", reason="in .venv-bench alone")
    peer = highway.Motorway(3, picture, 20)
    frames, taken, used = peer.driven(0.2)
    peer.close()
    assert frames > 2 and taken >= 0.2 and used > 0 and len(peer.environment.road.vehicles) == 4
