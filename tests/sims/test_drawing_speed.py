"""The measuring module measures: every case runs and names its peers. How fast anything is, no test says."""

from robo_sims.drawing_speed import CASES, measure


def test_every_case_has_figures_for_ours_and_its_peers():
    rows = measure(seconds=0.0, repeats=1)
    assert [row.case for row in rows] == list(CASES)
    assert all(row.ours > 0 and row.peers and min(row.peers.values()) > 0 for row in rows)
    assert all(row.ratios.keys() == row.peers.keys() for row in rows)
    assert set(rows[0].peers) == {"gymnasium", "gymnasium without shadows and reflections"}
