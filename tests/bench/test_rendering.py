"""The measuring module measures: every case runs and names its peers. How fast anything is, no test says."""

import pytest

from robo_bench.measurement import Effort
from robo_bench.rendering import cases


@pytest.mark.slow
def test_each_rendering_case_has_figures_or_a_limit():
    effort = Effort(seconds=1e-9, repeats=1)
    rows = [case.measure(effort) for case in cases(effort)]
    assert len(rows) == 6
    assert all(row.ours > 0 and (row.ratio or row.limit) > 0 for row in rows)
    assert set(rows[0].peers) == {"gymnasium", "gymnasium without shadows and reflections"}
