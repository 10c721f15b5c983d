"""What variety keeps, and what an F1 of plans pays for."""

from __future__ import annotations

import pytest

from robo_papers.alphadrive.study import SETS, toy


@pytest.mark.slow
def test_variety_keeps_two_right_plans_and_f1_is_not_hacked():
    """Sets of four actions, one state, 800 groups of 8; seeds 0 and 1."""
    two, listed = "F1 of the nearer of two right plans", "contains the right action"
    places = [SETS.index(frozenset({right})) for right in (0, 1)]
    for seed in range(2):
        (alone, worth), (kept, kept_worth) = (toy(two, variety, seed) for variety in (0.0, 0.2))
        assert min(alone[places]) < 0.05 and min(kept[places]) > 0.3
        assert kept_worth > 0.95 * worth
        assert toy("F1", 0.2, seed)[0][places[0]] > 0.9
    chances = toy(listed, 0.0, 0)[0]
    assert sum(chance for chance, each in zip(chances, SETS, strict=True) if len(each) >= 3) > 0.5
