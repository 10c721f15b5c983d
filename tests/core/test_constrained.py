"""The wrapper `constrained`: limits, models and penalties of constraint costs."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from robo_rl.environments.constrained import ConstrainedEnv
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting, RewardUnavailable, UnknownName
from robo_rl.evaluation.measures import Measure
from robo_rl.rewards.programs.runner import end_workers
from robo_rl.rollout import RandomPolicy, rollout
from robo_rl.spec.environment import specification
from robo_rl.types import MEASURES

NAME = "robo/ArmPush-v0"
NEAR = """
def reward(batch):
    near = np.where(batch["end_effector_position"][:, 2] < 10.0, 0.5, 0.0)
    return near, {"near": near}
"""
LOSS = """
def reward(batch):
    loss = -np.ones(len(batch["end_effector_position"]))
    return loss, {"loss": loss}
"""


@pytest.fixture(scope="module", autouse=True)
def _workers_end():
    yield
    end_workers()


@pytest.fixture
def program(tmp_path):
    def write(text):
        (tmp_path / "program.py").write_text(text)
        return {"reward": f"program:{tmp_path / 'program.py'}", "limit": "2 per episode", "meaning": "near the table"}

    return write


def constrained(name=NAME, costs=(), max_steps=None, **settings):
    arguments = {**({"costs": costs} if costs else {}), **({"max_steps": max_steps} if max_steps else {})}
    return make_environment(name, wrappers=[{"name": "constrained", **settings}], **arguments)


def episode_of(**arguments):
    environment = constrained(max_steps=4, **arguments)
    episode = rollout(environment, RandomPolicy(specification(environment), 0), seed=0)
    environment.close()
    return episode


def test_limits_replace_those_of_the_environment():
    spec = specification(constrained(costs=["force"], limits={"force": "7 N s"}))
    assert [(cost.name, cost.limit) for cost in spec.costs] == [("force", 7.0)]


def test_penalties_are_terms_of_the_reward():
    plain = episode_of(costs=["corridor", "force"])
    costly = episode_of(costs=["corridor", "force"], models={}, penalties={"corridor": 2.0})
    np.testing.assert_allclose(costly.rewards, plain.rewards - 2.0 * plain.costs["corridor"], rtol=1e-6)
    np.testing.assert_allclose(costly.reward_terms["penalty_corridor"], -2.0 * plain.costs["corridor"], rtol=1e-6)
    assert set(costly.costs) == {"corridor", "force"}


@pytest.mark.slow
def test_penalty_changes_the_reward_that_a_learner_sees(program):
    paid = episode_of(models={"near": program(NEAR)})
    penalised = episode_of(models={"near": program(NEAR)}, penalties={"near": 3.0})
    np.testing.assert_allclose(penalised.rewards, paid.rewards - 1.5, rtol=1e-6)


@pytest.mark.slow
def test_reward_program_serves_as_cost(program):
    environment = constrained(models={"near": program(NEAR)})
    (cost,) = specification(environment).costs
    assert (cost.name, cost.limit, cost.unit, cost.meaning) == ("near", 2.0, "1", "near the table")
    assert episode_of(models={"near": program(NEAR)}).costs["near"].tolist() == [0.5] * 4
    assert episode_of(models={"near": program(LOSS)}).costs["near"].tolist() == [0.0] * 4


@pytest.mark.slow
def test_step_without_a_value_of_the_model_is_refused(program):
    with pytest.raises(RewardUnavailable, match="gave no value"):
        episode_of(models={"near": program(LOSS.replace("-np.ones(", "np.log(-1.0) * np.ones("))})


@pytest.mark.parametrize(("action", "reason"), [(2, "failure"), (0, "time_limit")])  # forward into lava; turn on the spot
def test_lava_serves_as_cost(action, reason):
    environment = constrained("minigrid/MiniGrid-LavaGapS5-v0", ends={"failure": 0})
    environment.reset(seed=0)
    costs, is_over = [], False
    while not is_over:
        *_, terminated, truncated, info = environment.step(action)
        costs.append(info["costs"]["failure"])
        is_over = terminated or truncated
    assert info["stop_reason"] == reason
    assert sum(costs) == costs[-1] == float(reason == "failure")
    environment.close()


def test_growth_of_a_measure_serves_as_cost():
    environment = ConstrainedEnv(Measured(make_environment("robo/ArmPush-v0", max_steps=4)), measures={"bumps": 2, "rate": "3"})
    assert [(cost.name, cost.unit) for cost in environment.environment_spec.costs] == [("bumps", "N"), ("rate", "1")]
    for _ in range(2):
        episode = rollout(environment, RandomPolicy(environment.environment_spec, 0), seed=0)
        assert episode.costs["bumps"].tolist() == [1.0, 0.0, 2.0, 0.0]


class Measured(gymnasium.Wrapper):
    """Reports measures that grow, and fall once."""

    measures = (Measure("bumps", "N"), Measure("rate", per="bumps"))

    def reset(self, **options):
        self.left = [1.0, 1.0, 3.0, 2.0]
        return super().reset(**options)

    def step(self, action):
        *found, info = super().step(action)
        return (*found, info | {MEASURES: {"bumps": self.left.pop(0), "rate": 0.0}})


def test_vector_environment_is_constrained():
    environments = make_vector_environment(NAME, 2, costs=["force"], wrappers=[{"name": "constrained", "limits": {"force": 1}}])
    assert environments.environment_spec.costs[0].limit == 1.0
    environments.close()


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"limits": {"forse": 1}}, UnknownName, "cost in limits"),
        ({"penalties": {"spill": 1}}, UnknownName, "cost in penalties"),
        ({"limits": {"force": "1 N"}}, InvalidSetting, "another unit"),
        ({"penalties": {"force": -1}}, InvalidSetting, "no weight"),
        ({"penalties": {"force": float("nan")}}, InvalidSetting, "no weight"),
        ({"models": {"a": {"reward": "constant"}}}, InvalidSetting, "not complete"),
        ({"measures": {"bumps": 1}}, UnknownName, "measure of"),
        ({"ends": {"force": 1}}, InvalidSetting, "one name"),
        ({"models": {"a": {"reward": "constnt", "limit": 1}}}, UnknownName, "constnt"),
    ],
)
def test_settings_that_are_none_are_refused(arguments, kind, said):
    with pytest.raises(kind, match=said):
        constrained(costs=["force"], **arguments)
