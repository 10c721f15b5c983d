"""Reward-weighted regression: all that the folder declares keeps the promises of its kind, and the loss is the equation's."""

import numpy as np
import pytest
import torch

from my_paper.learner import RWR, RWRConfig
from robo_app.papers.checks import check_paper
from robo_rl.conformance.learners import random_batch
from robo_rl.conformance.swerving import Swerving


def test_the_paper_keeps_its_promises():
    check_paper("my_paper")


def test_weights_follow_the_rewards():
    spec = Swerving().environment_spec
    learner = RWR(spec, RWRConfig(temperature=0.5), seed=0)
    data = learner.parts.batch(random_batch(spec, 4, seed=0))
    with torch.no_grad():
        expected = np.exp(data.rewards.numpy() / 0.5)
        assert learner._weights(data).numpy() == pytest.approx(4 * expected / expected.sum(), rel=1e-5)
