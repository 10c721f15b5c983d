"""Tasks with constraint costs for tests of learners: random rollouts, and a decision whose best policy is known."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch

from factories import choices, make_spec
from robo_rl.runs.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ArraySpec
from robo_rl.training.on_policy import VectorStep

SMALL = {"num_envs": 4, "steps_per_env": 8, "batch_size": 16, "epochs": 2, "network": {"hidden": (8, 6)}}
STATE = ArraySpec("state", (2,))
BUDGETS = (ArraySpec("budget_a", (1,)), ArraySpec("budget_b", (1,)))
COSTS = (CostSpec("b", 4.0), CostSpec("a", 2.0, "N"))
SPEC = make_spec("costly", STATE, *BUDGETS, costs=COSTS)


class Silent:
    """An observer that keeps the newest metrics."""

    def __init__(self):
        self.metrics, self.costs = [], []

    def on_nothing(self, *_, **__):
        """Keep nothing."""

    on_step = on_nothing

    def on_episode(self, *_, costs, **__):
        """Keep the cost."""
        self.costs += [costs["c"]]

    def on_metrics(self, step, metrics):
        """Keep the metrics."""
        self.metrics.append(metrics)


def step_of(random, count=4, costs=None, unit=1.0, **changes):
    """Return a random step of environments with the costs a and b."""
    values = unit * random.random((count, 2)) if costs is None else np.asarray(costs, float)
    observations = {
        name: random.normal(size=(count, *array.shape)).astype(np.float32) for name, array in SPEC.observation.items()
    }
    none = np.zeros(count, np.bool_)
    facts = {"terminated": none, "truncated": none, "final_observations": {}, "rewards": random.normal(size=count)}
    return VectorStep(**({"observations": observations, "costs": values} | facts | changes))


def fill(learner, seed=0, unit=1.0):
    """Fill a rollout with random steps and ends of both kinds."""
    random = np.random.default_rng(seed)
    if learner.buffer.length == 0:
        learner.begin(step_of(random).observations)
    while not learner.is_ready:
        learner.act()
        terminated, truncated = random.random((2, 4)) < 0.15
        cut = int((truncated & ~terminated).sum())
        finals = step_of(random, cut).observations if cut else {}
        learner.observe(step_of(random, unit=unit, terminated=terminated, truncated=truncated, final_observations=finals))


def check_it_goes_on_exactly(config, length, folder):
    """Assert that a learner that is saved in the middle of a rollout and loaded makes the same next update."""
    learner = config.build(SPEC, 3)
    fill(learner)
    learner.update()
    random = np.random.default_rng(5)
    for _ in range(length):
        learner.act()
        learner.observe(step_of(random))
    save_checkpoint(folder / "state", Checkpoint(1, learner.state_dict()))
    other = config.build(SPEC, 4)
    other.load_state_dict(load_checkpoint(folder / "state").parts)
    fill(learner, 1)
    fill(other, 1)
    assert learner.update() == other.update()
    for first, second in zip(learner.networks.parameters(), other.networks.parameters(), strict=True):
        assert torch.equal(first, second)


class TwoStates(gymnasium.Env):
    """One decision: state 0 pays 1 and state 1 pays 0.5 for action 1, which costs 1 in both; action 0 pays and costs nothing.

    With the limit 0.6 the best policy takes action 1 always in state 0, with probability 0.2 in state 1; the multiplier is 0.5.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own style)

    def __init__(self):
        self.environment_spec = make_spec("two", STATE, action=choices("no", "yes"), max_steps=1, costs=(CostSpec("c", 0.6),))
        self.observation_space, self.action_space = self.environment_spec.observation.space, self.environment_spec.action.space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(2))
        return {"state": np.eye(2, dtype=np.float32)[self.state]}, {}

    def step(self, action):
        taken = float(action)
        reward = taken * (1.0, 0.5)[self.state]
        return {"state": np.eye(2, dtype=np.float32)[self.state]}, reward, True, False, {"costs": {"c": taken}}


def probabilities(policy):
    """Return the probability of action 1 in both states."""
    learner = policy._learner
    outputs = learner.outputs(learner.buffer.observations.scaled(np.eye(2, dtype=np.float32)), {})
    return torch.softmax(outputs, 1)[:, 1].tolist()


EXACT = {
    **{"num_envs": 16, "steps_per_env": 32, "batch_size": 128, "epochs": 4, "network": {"hidden": (8,)}, "lr": 2e-3},
    **{"entropy_coefficient": 0.05, "normalize": {"observations": False, "rewards": False, "costs": False}},
}


def trained(config, steps=60_000):
    """Return mean multiplier and episode cost of the last half, and the mean of probabilities."""
    observer = Silent()
    training = config.training(TwoStates, steps=steps, seed=0)
    training.run(observer)
    late = observer.metrics[len(observer.metrics) // 2 :]
    means = {name: float(np.mean([each[name] for each in late])) for name in late[-1] if name.startswith("train/")}
    means["cost"] = float(np.mean(observer.costs[len(observer.costs) // 2 :]))
    return means, probabilities(training.policy)
