"""Every vector environment keeps every rule; the single environment is the measure."""

import contextlib
import threading

import numpy as np
import pytest

from robo_rl.conformance import vector as vector_conformance
from robo_rl.conformance.vector import VECTOR_CHECKS, Subject, check_vector_environment
from robo_rl.environments.make import make_vector_environment
from robo_rl.errors import ConformanceFailure, InvalidAction

REPRESENTATIVES = (
    Subject("gymnasium/HalfCheetah-v5"),
    Subject("gymnasium/Humanoid-v5"),
    Subject("robo/ArmReach-v0", {"max_steps": 5}),
    Subject("robo/ArmPick-v0", {"control": "joint_position", "reward": "dense", "action_repeat": 2, "max_steps": 5}),
    Subject("robo/ArmPegInsert-v0", {"reward": "dense", "max_steps": 5}),
    Subject("dm_control/cheetah-run"),
    pytest.param(Subject("dm_control/finger-turn_hard", {"action_repeat": 2}), marks=pytest.mark.slow),
    Subject("minigrid/MiniGrid-DoorKey-5x5-v0"),
    Subject(
        "minigrid/MiniGrid-ObstructedMaze-1Dlhb-v0",
        {
            "encoding": "one-hot",
            "subgoals": "position",
            "teaching": {"teacher": "noisy", "settings": {"accuracy": 0.5, "distance": 2.0}, "levels": 5},
        },
    ),
    Subject("minigrid/MiniGrid-Unlock-v0"),  # not batched
    Subject("hazards/Point-v0"),
    Subject("hazards/Car-v0", {"limit": 5}),
)


@pytest.mark.parametrize("check", VECTOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("subject", REPRESENTATIVES, ids=lambda subject: subject.name)
def test_representative_keeps_the_rule(subject, check):
    check(subject)


# One broken variant for each rule: the suite must be able to fail.

TASK = "gymnasium/InvertedPendulum-v5"


def undeclared(vector, _):
    vector.metadata = {}


def slightly_wrong_reward(vector, step):
    def broken(actions):
        observation, rewards, *rest = step(actions)
        return observation, np.nextafter(rewards, 2.0), *rest

    vector.step = broken


def same_seed_for_all(vector, _):
    reset = vector.reset
    vector.reset = lambda seed=None, options=None: reset(
        seed=[seed] * vector.num_envs if isinstance(seed, int) else seed, options=options
    )


def counts_on_from_the_first_of_a_list(vector, _):
    reset = vector.reset
    vector.reset = lambda seed=None, options=None: reset(seed=seed[0] if isinstance(seed, list) else seed, options=options)


def builds_on_what_it_returned(vector, step):
    returned, truth = {}, {}

    def broken(actions):
        observation, *rest = step(actions)
        for name, value in observation.items():
            before = truth.get(name, value.copy())
            truth[name] = value.copy()
            value[:] += returned.get(name, before) - before  # nothing, unless someone has written into what was returned
            returned[name] = value
        return observation, *rest

    vector.step = broken


def reuses_its_arrays(vector, step):
    held = {}

    def broken(actions):
        observation, *rest = step(actions)
        for name, value in observation.items():
            held.setdefault(name, value)[:] = value
        return dict(held), *rest

    vector.step = broken


def sums_in_another_order_with_three_threads(vector, step):
    if vector.threads_asked_for == 3:
        slightly_wrong_reward(vector, step)


def anonymous_error(vector, step):
    def broken(actions):
        try:
            return step(actions)
        except InvalidAction:
            raise InvalidAction("The actions are wrong.") from None

    vector.step = broken


def forgets_generators(vector, _):
    load = vector.load_state_dict

    def broken(state):
        before = vector.batch._generators.states()
        load({**state, "batch": {**state["batch"], "generators": before}})

    vector.load_state_dict = broken


def hides_divergence(vector, _):
    vector._find_diverged = lambda step: None


def leaves_a_thread(vector, _):
    threading.Thread(target=threading.Event().wait, args=(2.0,), daemon=True).start()


BROKEN = [
    (undeclared, "spaces are batches of the singles'", "the autoreset mode is not declared"),
    (slightly_wrong_reward, "equals the singles in mode NextStep", "/1: "),
    (same_seed_for_all, "equals the singles in mode NextStep", "differs after the reset"),
    (counts_on_from_the_first_of_a_list, "seeds count up or come as a list", "differs for the same seeds"),
    (anonymous_error, "wrong actions name their environments", "does not say 'environments [1]'"),
    (builds_on_what_it_returned, "observations are not shared", "differs after writing into one"),
    (reuses_its_arrays, "observations are not shared", "a later step writes into an earlier observation"),
    (forgets_generators, "a restored batch continues alike", "after restoring"),
    (hides_divergence, "divergence stays with its environment", "is not truncated"),
    (leaves_a_thread, "nothing stays after closing", "threads are left"),
    (sums_in_another_order_with_three_threads, "the number of threads changes nothing", "/1: "),
]


def test_each_rule_has_a_broken_variant():
    caught = {rule.partition(" in mode ")[0] for _, rule, _ in BROKEN}
    assert len(caught) == len(VECTOR_CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize(("spoil", "rule", "words"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_vector_environment_is_caught_by_its_rule(monkeypatch, spoil, rule, words):
    def make(*arguments, **settings):
        vector = make_vector_environment(*arguments, **settings)
        vector.threads_asked_for = settings.get("threads")
        spoil(vector, vector.step)
        return vector

    monkeypatch.setattr(vector_conformance, "make_vector_environment", make)
    with pytest.raises(ConformanceFailure) as caught:
        check_vector_environment(TASK)
    assert caught.value.rule == rule
    assert words in str(caught.value)


def test_step_is_refused_before_reset_and_after_end():
    import gymnasium

    with contextlib.closing(make_vector_environment(TASK, 2, autoreset_mode="Disabled")) as vector:
        actions = np.ones((2, 1), np.float32)
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"environments \[0, 1\] .* call reset\(\)"):
            vector.step(actions)
        vector.reset(seed=0)
        over = np.zeros(2, bool)
        while not over.any():
            _, _, terminated, truncated, _ = vector.step(actions)
            over = terminated | truncated
        with pytest.raises(gymnasium.error.ResetNeeded, match="reset_mask"):
            vector.step(actions)
        vector.reset(options={"reset_mask": over})
        vector.step(actions)
