"""BARFI: the implicit gradient of a known quadratic, and a weight that follows a heuristic's worth."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
import torch

from factories import choices, make_spec
from robo_bench.trainings import Silent
from robo_papers.barfi.learner import BARFI, BARFIConfig, BARFINetwork, largest_curvature, neumann
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec


def test_the_series_of_a_quadratic_is_exact_to_the_known_error():
    """J_phi = -a (theta - phi)^2 / 2, J_p = -(theta - c)^2 / 2: the relative error of J terms is |1 - alpha a|^J."""
    a, alpha, phi, c = 2.0, 0.1, 0.7, -0.4
    task = torch.tensor([-(phi - c)])  # at the inner maximum theta = phi
    for terms, error in ((5, 0.3277), (20, 0.0115), (50, 1.4e-5)):
        found = a * neumann(lambda vector: -a * vector, task, alpha, terms)  # d(d J_phi / d theta) / d phi = a
        assert float(1.0 - found / task) == pytest.approx((1 - alpha * a) ** terms, rel=2e-2, abs=1e-6)
        assert float(1.0 - found / task) == pytest.approx(error, rel=5e-2)
    curved = torch.diag(torch.tensor([-3.0, 1.0, 0.5]))
    length = largest_curvature(lambda vector: curved @ vector, 3, torch.Generator().manual_seed(0), rounds=30)
    assert length == pytest.approx(3.0, rel=1e-3)


class Grid(gymnasium.Env):
    """6 x 6 places, the goal in the far corner; a heuristic pays for coming nearer, or for going away."""

    environment_spec = make_spec("a/Grid", ArraySpec("place", (36,)), action=choices("u", "d", "l", "r"), max_steps=22)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space
    sign = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at, self._steps = np.array([0, 0]), 0
        return self._observed(), {}

    def step(self, action):
        before = self._at.sum()
        self._at = np.clip(self._at + np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])[int(action)], 0, 5)
        self._steps += 1
        done = bool((self._at == 5).all())
        terms = {"task": float(done), "heuristic": 0.05 * self.sign * float(self._at.sum() - before)}
        over = self._steps == 22 and not done
        return self._observed(), float(done), done, over, {"success": done, "reward_terms": terms}

    def _observed(self):
        return {"place": np.eye(36, dtype=np.float32)[self._at[0] * 6 + self._at[1]]}


class Misleading(Grid):
    sign = -1.0


def barfi(environment, **settings):
    plain = {"network": {"hidden": (), "normalization_rows": 0}, "lr": 0.02, "episodes": 8, "first_weight": 0.0}
    config = updated(BARFIConfig(), plain, settings, auxiliary="heuristic")
    training = config.training(environment, steps=5000, seed=0)
    training.run(Silent())
    return training.learner.weight


@pytest.mark.slow
def test_the_weight_of_a_heuristic_follows_its_worth():
    assert barfi(Grid) > 0.05 and barfi(Misleading) < -0.05
    assert barfi(Grid, learns_blend=False) == 0.0  # the control


@pytest.mark.slow
def test_a_series_that_diverges_is_warned_of():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        barfi(Grid, alpha=1e4, terms=2)
    assert any("lower learner.alpha" in str(each.message) for each in heard)


@pytest.mark.slow
def test_bad_settings_have_one_clear_error():
    with pytest.raises(InvalidSetting, match="auxiliary"):
        BARFIConfig().build(Grid.environment_spec, 0)
    with pytest.raises(InvalidSetting, match="engine"):
        BARFIConfig(auxiliary="heuristic", network=BARFINetwork(engine="accelerated"))
    with pytest.raises(UnknownName, match="nothing"):
        BARFIConfig(auxiliary="nothing", episodes=1).training(Grid, steps=100, seed=0).run(Silent())
    assert isinstance(BARFIConfig(auxiliary="a").build(Grid.environment_spec, 0), BARFI)
