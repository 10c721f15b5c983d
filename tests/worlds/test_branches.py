"""Branches beside a training: own memory, shares, schedule, exact resume, what cannot be combined."""

import numpy as np
import pytest
from worlds.point import SPEC, episodes

from factories import make_spec, picture_spec
from robo_app.papers.trials import run_learner
from robo_policies.learners.rlpd import RLPDConfig
from robo_policies.learners.sac import SACConfig
from robo_rl.conformance.learners import different_leaves
from robo_rl.conformance.trainings import TRAINING_CHECKS
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.contract import Feature
from robo_rl.protocols.sampling import Replay, Worlds
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.replay.mixing import WithImagined
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.compatibility import Capabilities
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.worlds.branches import Branches

WORLDS = Worlds(share=0.5, horizon=3, every=50, branches=20, kept=2, members=2, elites=1, hidden=(16,), updates=30)
SMALL = {"network": {"hidden": (8,)}, "batch_size": 16, "worlds": WORLDS}


def sac(**changes):
    config = updated(SACConfig(replay=Replay(capacity=2000, learning_starts=1)), SMALL, changes)
    return config.build(SPEC, 0), config.sampling


def filled(seed=0, count=20):
    replay = ReplayBuffer(SPEC, 2000, seed)
    for each in episodes(count):
        replay.add_episode(each)
    return replay


def test_branches_begin_in_real_states_and_stay_short():
    learner, sampling = sac()
    branches, replay = Branches(learner.policy, sampling, 0), filled()
    branches.renew(1, [replay])
    real = {round(float(x), 5) for x in replay.transitions(10_000, np.random.default_rng(0)).observations["place"][:, 0]}
    rows = branches.memory.state_dict()["rows"]
    begins = np.flatnonzero(rows["starts"])
    assert 40 <= len(branches.memory) == len(begins) <= 60  # 20 branches of 3 steps, of which some end
    places = rows["vectors"][:, 0]
    assert {round(float(places[row]), 5) for row in range(20)} <= real
    assert branches.metrics["world/fits"] == 1 and branches.metrics["world/imagined"] == len(branches.memory)


def test_schedule_and_memory():
    learner, sampling = sac()
    branches, replay = Branches(learner.policy, sampling, 0), filled()
    for step in range(1, 201):
        branches.renew(step, [replay])
    assert branches.metrics["world/fits"] == 4
    assert branches.memory.capacity == 20 * 2 * 3 * 2
    empty = Branches(learner.policy, sampling, 0)
    empty.renew(1, [ReplayBuffer(SPEC, 100, 0).__class__(SPEC, 100, 0)])
    assert not len(empty.memory) and not empty.metrics  # nothing to learn from yet


@pytest.mark.parametrize(("share", "imagined"), [(0.5, 8), (0.25, 4), (0.9, 14)])
def test_share_of_each_batch_is_imagined(share, imagined):
    real, other = filled(), ReplayBuffer(SPEC, 100, 1)
    mixed = WithImagined(real, other, share)
    assert (mixed.sample(16).rewards <= 0).all()  # nothing imagined yet
    first = {"place": np.zeros(1, np.float32), "goal": np.ones(1, np.float32)}
    from robo_rl.types import Transition

    other.begin(first)
    for _ in range(5):
        other.add(Transition(first, np.zeros(1, np.float32), 7.0, first, False, False, np.zeros(1, np.float32)))
    batch = mixed.sample(16)
    assert int((batch.rewards == 7).sum()) == imagined


def learning(seed=0, **changes):
    learner, sampling = sac(**changes)
    return ReplayLearner(learner, sampling, seed=seed, stopwatch=Stopwatch(), demonstrations=episodes(20))


def test_resume_is_exact():
    one = learning()
    for step in range(1, 60):
        one.update(step)
    other = learning()
    other.load_state_dict(one.state_dict())
    for step in range(60, 120):
        one.update(step)
        other.update(step)
    assert one.branches.metrics["world/fits"] == 3
    assert different_leaves(one.state_dict(), other.state_dict()) == []


def test_share_zero_changes_nothing():
    with_group, without = learning(worlds={"share": 0.0}), learning(worlds=Worlds())
    assert with_group.branches is None
    for step in range(1, 20):
        with_group.update(step)
        without.update(step)
    assert different_leaves(with_group.state_dict(), without.state_dict()) == []


def test_rlpd_has_demonstrations_and_imagined_steps():
    config = updated(RLPDConfig(), SMALL, {"updates_per_step": 2, "replay": {"learning_starts": 1, "capacity": 2000}})
    learner = config.build(SPEC, 0)
    part = ReplayLearner(learner, config.sampling, seed=0, stopwatch=Stopwatch(), demonstrations=episodes(20))
    for each in episodes(3, first=50):
        part.replay.add_episode(each)
    for step in range(1, 4):
        part.update(step)
    assert part.branches.metrics["world/fits"] == 1


def test_what_has_no_imagined_steps_is_refused():
    seen = make_spec("seen", picture_spec(), ArraySpec("x", (2,)))
    learner = SACConfig().build(seen, 0)
    assert Branches(learner.policy, SACConfig(worlds=WORLDS).sampling, 0)  # SAC does not read the picture
    with pytest.raises(InvalidSetting, match=r"worlds.share(.|\n)*0 to 1"):
        Worlds(share=1.0)
    with pytest.raises(InvalidSetting, match=r"worlds.horizon"):
        Worlds(horizon=0)
    with pytest.raises(InvalidSetting, match=r"worlds.penalty(.|\n)*2 elites"):
        Worlds(elites=1, penalty=1.0)
    able = Capabilities.of(SACConfig(worlds=WORLDS))
    assert "worlds.share" in able.excludes[Feature.RELABELLED]


@pytest.mark.slow
def test_shuffled_actions_are_a_control():
    errors = {}
    for shuffled in (False, True):
        learner, sampling = sac(worlds={"shuffles_actions": shuffled, "updates": 300})
        branches = Branches(learner.policy, sampling, 0)
        branches.renew(1, [filled(count=40)])
        errors[shuffled] = branches.metrics["world/held_out_error"]
    assert errors[False] < 0.7 * errors[True]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
def test_training_beside_a_world_keeps_every_rule(count):
    config = updated(SACConfig(), SMALL, {"replay": {"learning_starts": 16, "capacity": 1000}, "worlds": {"every": 20}})
    trial = run_learner(config, count=count)
    for check in TRAINING_CHECKS:
        check(trial)
