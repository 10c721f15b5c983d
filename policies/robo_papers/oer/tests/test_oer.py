"""OER: what is kept of a task, the loss of two policies by hand, and forgetting that memories prevent."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from factories import axes, make_episode, make_spec
from robo_bench.trainings import Silent
from robo_papers.oer.learner import ContinualTraining, Memory, OERConfig, chosen, tasks_of
from robo_papers.oer.selection import Recorded, predicted, select
from robo_rl.errors import InvalidSetting
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec

SPEC = make_spec("a/Line", ArraySpec("x", (2,)), action=axes("dx"), max_steps=10)
SMALL = {"network": {"hidden": (16,)}, "batch_size": 32, "lr": 3e-3, "capacity": 20, "model_updates": 50}


class Line(gymnasium.Env):
    """Never played."""

    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space


def episodes(task, count=8, steps=10, seed=0):
    """Steps at places near `task`, 0 or 1, where the right action is 0.8 or -0.8."""
    random = np.random.default_rng([seed, task])
    found = []
    for _ in range(count):
        places = random.normal([float(task), 0.0], 0.1, (steps + 1, 2))
        actions = np.full((steps, 1), 0.8 - 1.6 * task) + random.normal(0, 0.05, (steps, 1))
        arrays = {"x": places.astype(np.float32)}
        found.append(make_episode(arrays, actions=actions.astype(np.float32), instruction=f"task {task}"))
    return found


BOTH = [*episodes(0), *episodes(1)]


def trained(steps=600, **settings):
    config = updated(OERConfig(), SMALL, settings)
    training = ContinualTraining(Line(), config, steps=steps, seed=0, demonstrations=BOTH)
    training.run(Silent())
    return training


def action(training, place):
    return float(training.policy.act({"x": np.array([place, 0.0], np.float32)}, deterministic=True)[0])


# tasks


def test_tasks_are_instructions_or_numbers_of_episodes():
    assert [len(each) for each in tasks_of(BOTH[::-1], ())] == [8, 8]
    assert tasks_of(BOTH[::-1], ())[0][0].instruction == "task 1"  # in the order in which they come
    assert [len(each) for each in tasks_of(BOTH, (3, 13))] == [3, 13]
    with pytest.raises(InvalidSetting, match="another number"):
        tasks_of(BOTH, (3, 3))
    with pytest.raises(InvalidSetting, match="two tasks"):
        tasks_of(BOTH[:8], ())


# selection


def recorded(states, following=None, actions=None, act=None, firsts=(0,)):
    count = len(states)
    actions = np.zeros((count, 1)) if actions is None else actions
    return Recorded(
        states=states,
        actions=actions,
        following=states if following is None else following,
        rewards=np.arange(count, dtype=np.float64),
        firsts=np.array(firsts),
        surprise=np.arange(count, dtype=np.float64)[::-1],
        act=(lambda places: np.zeros((len(places), 1))) if act is None else act,
    )


def test_rules_keep_what_they_say():
    random = np.random.default_rng(0)
    given = recorded(np.array([[0.0], [0.1], [0.2], [5.0], [9.0]]))
    assert select("reward", given, 2, random).tolist() == [4, 3]
    assert select("surprise", given, 2, random).tolist() == [0, 1]
    assert {3, 4} <= set(select("coverage", given, 3, random).tolist())
    for rule in ("random", "coverage", "model", "reward", "surprise"):
        kept = select(rule, given, 3, random, updates=1)
        assert len(set(kept.tolist())) == 3 and set(select(rule, given, 9, random).tolist()) == set(range(5))


@pytest.mark.slow
def test_the_model_leads_along_the_policy():
    """Recorded steps go both ways from each place; the policy goes up, and so do the steps that are kept."""
    places = np.repeat(np.arange(-20.0, 21.0), 2)[:, None]
    moves = np.tile([1.0, -1.0], 41)[:, None]
    starts = np.flatnonzero(places[:, 0] == 0)[:1]
    given = recorded(places, places + moves, moves, lambda rows: np.ones((len(rows), 1)), starts)
    kept = select("model", given, 15, np.random.default_rng(0), updates=1500)
    assert (places[kept, 0] >= 0).mean() > 0.9
    both = recorded(places, places + moves, moves, lambda rows: moves[rows], starts)
    np.testing.assert_allclose(predicted(both, np.random.default_rng(0), 1500), places + moves, atol=0.3)


# learning


@pytest.mark.slow
def test_memories_prevent_forgetting():
    kept = trained()
    assert action(kept, 0.0) > 0.4 and action(kept, 1.0) < -0.4
    forgot = trained(capacity=0)
    assert action(forgot, 0.0) < 0.0 and action(forgot, 1.0) < -0.4
    one = trained(dual=False, selection="random")
    assert action(one, 0.0) > 0.3
    assert action(trained(dual=False, capacity=0), 0.0) < 0.0


@pytest.mark.slow
def test_elastic_weights_hold_the_actor():
    free, held = (trained(dual=False, capacity=0, ewc=weight) for weight in (0.0, 1e4))
    assert abs(action(held, 0.0) - 0.8) < abs(action(free, 0.0) - 0.8)
    ((parameters, importance),) = held.rehearsal.anchors
    assert all(float(each.min()) >= 0.0 for each in importance)
    assert [each.shape for each in parameters] == [each.shape for each in held.learner.actor.parameters()]


@pytest.mark.slow
def test_two_clones_weigh_as_the_paper_says():
    training = trained(300, selection="random")  # at the end of the first task
    training.memories = [Memory({"x": np.zeros((4, 2), np.float32)}, np.full((4, 1), 0.5, np.float32))]
    batch = training._replay.sample(32)
    taught = training._imitated(batch)
    assert len(taught) == 64 and taught.weights[:32].tolist() == [2.0] * 32 and taught.weights[32:].tolist() == [1.0] * 32
    np.testing.assert_allclose(taught.actions[:32], chosen(training.learner, {**batch.observations}))
    assert (taught.actions[32:] == 0.5).all()
    imitator = training.imitator
    data = imitator.parts.batch(taught)
    with torch.no_grad():
        losses = imitator.actor.loss(imitator.parts.encoder(data.observations), data.actions)
        mean = float((data.weights * losses).mean())
    assert mean == pytest.approx(float(losses[:32].mean() + losses[32:].mean() / 2), rel=1e-5)


@pytest.mark.slow
def test_a_resume_remembers_tasks_and_memories():
    training = trained(dual=False, ewc=1.0)
    again = ContinualTraining(Line(), training.config, steps=600, seed=0, demonstrations=BOTH)
    again.load_state_dict(training.state_dict())
    assert (again.step, again.task, len(again.memories), len(again.rehearsal.anchors)) == (600, 1, 1, 1)
    assert action(again, 0.0) == action(training, 0.0)
    np.testing.assert_array_equal(again.memories[0].actions, training.memories[0].actions)
    policy = training.config.restored_policy(Line, seed=0, state=training.state_dict())
    assert float(policy.act({"x": np.zeros(2, np.float32)}, deterministic=True)[0]) == action(training, 0.0)


def test_bad_settings_have_one_clear_error():
    with pytest.raises(InvalidSetting, match="recorded episodes alone"):
        ContinualTraining(Line(), OERConfig(), steps=1, seed=0, demonstrations=())
    for settings in ({"ewc": 1.0}, {"capacity": -1}, {"tasks": (0,)}):
        with pytest.raises(InvalidSetting):
            updated(OERConfig(), settings)
