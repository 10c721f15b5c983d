"""Every vector environment keeps every rule; the single environment is the measure."""

import pytest

from robo_rl.vector_conformance import VECTOR_CHECKS, Subject

REPRESENTATIVES = ("gymnasium/HalfCheetah-v5", "gymnasium/Hopper-v5", "minigrid/MiniGrid-DoorKey-5x5-v0")


@pytest.mark.parametrize("check", VECTOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_representative_keeps_the_rule(name, check):
    check(Subject(name))
