"""Every vector environment keeps every rule; the single environment is the measure."""

import pytest

from robo_rl.vector_conformance import VECTOR_CHECKS, Subject

REPRESENTATIVES = (
    Subject("gymnasium/HalfCheetah-v5"),
    Subject("gymnasium/Humanoid-v5"),
    Subject("robo/ArmReach-v0", {"max_steps": 5}),
    Subject("robo/ArmPick-v0", {"control": "joint_position", "reward": "dense", "action_repeat": 2, "max_steps": 5}),
    Subject("robo/ArmPegInsert-v0", {"reward": "dense", "max_steps": 5}),
    Subject("dm_control/cheetah-run"),
    Subject("dm_control/finger-turn_hard"),
    Subject("dm_control/manipulation-reach_site_features"),
    Subject("minigrid/MiniGrid-DoorKey-5x5-v0"),
)


@pytest.mark.parametrize("check", VECTOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("subject", REPRESENTATIVES, ids=lambda subject: subject.name)
def test_representative_keeps_the_rule(subject, check):
    check(subject)
