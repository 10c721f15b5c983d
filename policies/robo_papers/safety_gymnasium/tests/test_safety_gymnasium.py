"""Safety-Gymnasium's tasks: equal to the source driven by itself, with its costs under our limits."""

import importlib.util

import gymnasium
import numpy as np
import pytest

from robo_papers.safety_gymnasium.tasks import builder
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.spec.environment import specification

COSTLY = {"SafetyPointGoal2-v0": 4, "SafetyCarButton1-v0": 4, "SafetyRacecarPush2-v0": 4, "SafetyPointCircle1-v0": 5}
"""Tasks, and seeds with which random actions cost something."""


@pytest.mark.slow
@pytest.mark.parametrize(("task", "seed"), COSTLY.items())
def test_steps_equal_those_of_the_source(task, seed):
    ours = make_environment(f"safety_gymnasium/{task}")
    agent = next(name for name in ("Point", "Car", "Racecar") if task.startswith(f"Safety{name}"))
    with np.errstate(over="ignore"):  # Gymnasium casts infinite limits
        source = builder()(task, config={"agent_name": agent})
    random = np.random.default_rng(0)
    found, _ = ours.reset(seed=seed)
    wanted, _ = source.reset(seed=seed)
    spent = 0.0
    for _ in range(150):
        action = random.uniform(0.0, 1.0, ours.action_space.shape).astype(np.float32)  # on the whole ahead
        found, reward, terminated, _, info = ours.step(action)
        physical = specification(ours).action.to_physical(action)
        wanted, wanted_reward, cost, wanted_end, _, _ = source.step(np.asarray(physical, np.float64))
        flat = gymnasium.spaces.utils.flatten(source.obs_space_dict, found)
        np.testing.assert_allclose(flat, wanted, atol=1e-6)
        assert (reward, info["costs"]["cost"]) == (pytest.approx(wanted_reward), cost)
        assert terminated == wanted_end
        spent += cost
    assert spent > 0.0


@pytest.mark.slow
def test_driving_into_hazards_costs():
    environment = make_environment("safety_gymnasium/SafetyPointGoal2-v0", costs="parts", limit="10 per episode")
    assert {cost.name: cost.limit for cost in specification(environment).costs} == {
        "hazards": 10.0, "vases_contact": 10.0, "vases_velocity": 10.0,
    }  # fmt: skip
    totals = dict.fromkeys(("hazards", "vases_contact", "vases_velocity"), 0.0)
    for seed in range(2):
        environment.reset(seed=seed)
        for _ in range(300):
            _, _, terminated, truncated, info = environment.step(np.array([1.0, 0.05], np.float32))
            for name, value in info["costs"].items():
                totals[name] += value
            if terminated or truncated:
                break
    assert totals["hazards"] > 0.0


@pytest.mark.slow
def test_an_episode_has_the_length_of_the_source():
    environment = make_environment("safety_gymnasium/SafetyPointCircle0-v0")
    environment.reset(seed=0)
    for _ in range(499):
        assert not any(environment.step(np.zeros(2, np.float32))[2:4])
    assert environment.step(np.zeros(2, np.float32))[3]


@pytest.mark.slow
def test_reached_goals_are_counted():
    environment = make_environment("safety_gymnasium/SafetyPointGoal0-v0")
    environment.reset(seed=0)
    task = environment.get_wrapper_attr("simulation")._environment.task
    task.data.qpos[:2] = (task.agent.mat.T @ (np.asarray(task.goal.pos) - task.agent.pos))[:2]  # in its first heading
    *_, info = environment.step(np.zeros(2, np.float32))
    assert info["measures"]["goals"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"limit": "3 per step"}, "per step"), ({"limit": -1.0}, "no limit"), ({"costs": "all"}, "sum")],
)
def test_wrong_settings_are_refused(arguments, words):
    with pytest.raises(InvalidSetting, match=words):
        make_environment("safety_gymnasium/SafetyPointGoal1-v0", **arguments)


def test_without_the_package_the_error_says_what_installs_it(monkeypatch):
    plain = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "safety_gymnasium" else plain(name))
    with pytest.raises(MissingExtra, match="pip install --no-deps safety-gymnasium"):
        make_environment("safety_gymnasium/SafetyPointGoal1-v0")
