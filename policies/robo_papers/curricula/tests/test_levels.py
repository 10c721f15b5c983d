"""Success on the levels of the training, and on others."""

from __future__ import annotations

import pytest

from robo_papers.curricula.levels import scores


@pytest.mark.slow
def test_one_level_is_memorised(tmp_path):
    train, test = scores(tmp_path, 1, 0, episodes=60, updates=1500, tests=20)
    assert train == 1.0 and test < 0.3
