"""A policy's spec has what the policy reads: pictures only where it looks at them."""

from dataclasses import replace

import pytest

from robo_policies.learners.act import ACTConfig
from robo_policies.learners.diffusion_bc import DiffusionBCConfig
from robo_policies.learners.drq import DrQConfig
from robo_policies.learners.flow_bc import FlowBCConfig
from robo_policies.learners.hil_serl import HILSERLConfig
from robo_policies.learners.iql import IQLConfig
from robo_policies.learners.ppo import PPOConfig
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, ObservationSpec

CONFIGS = (SACConfig, RLPDConfig, HILSERLConfig, IQLConfig, DiffusionBCConfig, FlowBCConfig, ACTConfig, PPOConfig)
SEEING = (*(config for config in CONFIGS if config is not SACConfig), DrQConfig)
GRIPPER = ArraySpec("b", (1,))


@pytest.fixture
def seen(spec):
    picture = ArraySpec("camera_front", (8, 8, 3), "uint8", 0, 255, role="image")
    arrays = tuple(picture if array.role == "image" else array for array in spec.observation.arrays)
    return replace(spec, observation=ObservationSpec((*arrays, GRIPPER)))


@pytest.mark.parametrize("config", CONFIGS)
def test_policy_spec_lacks_pictures_that_are_not_read(config, seen):
    settings = {"gripper": "b"} if config is HILSERLConfig else {}
    assert updated(config(), settings).build(seen, 0).policy.environment_spec == seen.without_pictures()


@pytest.mark.parametrize("config", SEEING)
def test_policy_spec_has_pictures_that_are_read(config, seen):
    settings = {"gripper": "b"} if config is HILSERLConfig else {}
    assert updated(config(), settings, network={"convolutions": (4,)}).build(seen, 0).policy.environment_spec == seen
