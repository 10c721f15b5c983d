"""Objectives: rewards that sum to them, what the policy must remember, and choices that follow from them alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from factories import axes, make_spec
from robo_app.recipes.loop_choice import loop_of
from robo_app.recipes.recipe import parse_recipe, to_yaml
from robo_app.training.assembly import judged_environment_of
from robo_bench.trainings import Silent
from robo_papers.objectives.wrappers import CVaR, Maximum, Minimum
from robo_policies.learners.sac import SACConfig
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.evaluation.statistics import tail_mean
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, specification
from robo_rl.training.off_policy import online_training

gymnasium = pytest.importorskip("gymnasium")


class Paid(gymnasium.Env):
    """Pays the action itself, for four steps."""

    environment_spec = make_spec("a/Paid", ArraySpec("x", (1,)), action=axes("dx"), max_steps=4)
    observation_space, action_space = environment_spec.observation.space, environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return {"x": np.zeros(1, np.float32)}, {}

    def step(self, action):
        self._steps += 1
        return {"x": np.zeros(1, np.float32)}, float(action[0]), False, self._steps == 4, {}


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        (Maximum(), lambda paid: max(0.0, *paid)),
        (Maximum(start=-2.0), lambda paid: max(paid) + 2.0),
        (Minimum(start=1.0), lambda paid: min(paid) - 1.0),
        (CVaR(share=0.25, threshold=1.0), lambda paid: (1.0 - max(0.0, 1.0 - sum(paid)) / 0.25) - (1.0 - 1.0 / 0.25)),
    ],
    ids=["maximum", "maximum from -2", "minimum", "cvar"],
)
def test_the_rewards_of_any_episode_sum_to_the_objective(objective, value):
    environment = objective.wrap(Paid())
    for paid in product((-0.75, 0.0, 0.5, 1.0), repeat=4):
        first, _ = environment.reset(seed=0)
        steps = [environment.step(np.array([each], np.float32)) for each in paid]
        assert sum(step[1] for step in steps) == pytest.approx(value(paid))
        assert all(step[1] == sum(step[4]["reward_terms"].values()) for step in steps)
        assert steps[-1][4]["measures"]["task_return"] == pytest.approx(sum(paid))
        assert first[objective.entry] == objective.first  # an episode remembers nothing of the one before
    assert environment.observation_space.contains(steps[-1][0])


def test_the_policy_sees_what_is_remembered():
    environment = CVaR(threshold=3.0).wrap(Paid())
    environment.reset(seed=0)
    seen = [float(environment.step(np.array([each], np.float32))[0]["return_so_far"][0]) for each in (0.5, -1.0, 0.25)]
    assert seen == [0.5, -0.5, -0.25]


def test_a_threshold_at_the_quantile_gives_the_worst_mean():
    """Rockafellar and Uryasev: below for every threshold, equal at the quantile; against the mean of the sorted tail."""
    returns = np.random.default_rng(0).normal(size=1000)
    worst = tail_mean(returns, 0.1)
    assert worst == pytest.approx(np.sort(returns)[:100].mean())
    found = [x - np.maximum(0.0, x - returns).mean() / 0.1 for x in np.linspace(-3, 1, 400)]
    assert max(found) <= worst + 1e-9
    assert max(found) == pytest.approx(worst, abs=1e-3)
    assert tail_mean([1.0, 2.0, 3.0], 0.5) == pytest.approx((1.0 + 0.5 * 2.0) / 1.5)  # a part of an episode counts in part
    with pytest.raises(InvalidSetting):
        tail_mean([], 0.5)


class Lottery(Paid):
    """One step: left pays 0.5, right 2, or -4 in a fifth of the episodes."""

    environment_spec = make_spec("a/Lottery", ArraySpec("x", (1,)), action=axes("dx"), max_steps=1)

    def step(self, action):
        paid = 0.5 if action[0] < 0 else (-4.0 if self.np_random.random() < 0.2 else 2.0)
        return {"x": np.zeros(1, np.float32)}, paid, False, True, {}


SMALL = {
    "network": {"hidden": (16,)},
    "batch_size": 64,
    "lr": 3e-3,
    "replay": {"learning_starts": 200},
    "initial_temperature": 0.05,
}


def trained(environment, config, steps):
    learner = config.build(specification(environment), 0)
    online_training(environment, learner, config.sampling, steps=steps, seed=0).run(Silent())
    return learner


@pytest.mark.parametrize(("objective", "is_careful"), [(None, False), ({"share": 0.2, "threshold": 0.5}, True)])
@pytest.mark.slow
def test_the_worst_fifth_makes_a_policy_careful(objective, is_careful):
    environment = CVaR(**objective).wrap(Lottery()) if objective else Lottery()
    policy = trained(environment, updated(SACConfig(), SMALL, target_entropy_per_action=-2.0), 800).policy
    observation, _ = environment.reset(seed=1)
    assert (policy.act(observation, deterministic=True)[0] < 0) == is_careful


MAXIMUM = {"name": "hazards/Point-v0", "wrappers": [{"name": "maximum"}]}
OF_POINT = {"environment": {"name": "hazards/Point-v0"}, "name": "point", "steps": 10}


def test_a_recipe_has_an_objective_in_training_and_evaluation():
    recipe = parse_recipe({**OF_POINT, "algorithm": "sac", "environment": MAXIMUM}, source="here")
    assert recipe.arguments == {"wrappers": [{"name": "maximum"}]}
    environment = judged_environment_of(recipe)
    assert "best_reward" in specification(environment).observation
    found = evaluate(RandomPolicy(specification(environment), 0), environment, 2)
    assert "task_return" in found.measured
    environment.close()
    assert "wrappers:\n  - name: maximum" in to_yaml(recipe)
    offline = {**OF_POINT, "algorithm": "iql", "environment": MAXIMUM, "demonstrations": {"episodes": 1}}
    with pytest.raises(InvalidSetting, match=r"iql (.|\n)*an objective among environment\.wrappers"):
        loop_of(parse_recipe(offline, source="here"))
    assert loop_of(parse_recipe({**offline, "online": {"steps": 5}}, source="here")).name == "data, then steps"


def test_objectives_of_several_environments():
    given = {"name": "maximum", "start": -5.0}
    environments = make_vector_environment("hazards/Point-v0", 3, wrappers=[given])
    observations, _ = environments.reset(seed=0)
    assert observations["best_reward"].tolist() == [[-5.0]] * 3
    environments.close()
    stacked = make_environment("hazards/Point-v0", wrappers=[given, {"name": "frame_stack", "count": 2, "stacks": "vectors"}])
    episode = rollout(stacked, RandomPolicy(specification(stacked), 0), seed=0)
    assert (np.diff(episode.observations["best_reward"][:, -1]) >= 0).all()
    stacked.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "maximun"}, "maximum"),
        ({"name": "maximum", "begin": 1.0}, "begin"),
        ({"name": "maximum", "start": float("nan")}, "start"),
        ({"name": "cvar", "share": 0.0}, "share"),
        ({"name": "reward_machine"}, "no machine"),
    ],
)
def test_what_is_no_objective_is_one_error(given, message):
    with pytest.raises((InvalidSetting, UnknownName), match=message):
        make_environment("hazards/Point-v0", wrappers=[given])
