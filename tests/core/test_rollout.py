import re

import gymnasium
import numpy as np
import pytest

from factories import axes, choices, make_spec
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import EnvironmentFailed, InvalidAction, InvalidEpisode, InvalidObservation
from robo_rl.protocols.components import Policy, Stateful
from robo_rl.rollout.episode import RandomPolicy, Rollout, rollout
from robo_rl.rollout.vector import VectorRollout
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.types import ActionSource

SPEC = make_spec(
    "test/Walk",
    ArraySpec("position", (2,), unit="m"),
    action=axes("x", "y", unit="m/s", mode="joint_velocity", control_period=0.1),
    instruction="walk",
    max_steps=5,
)


class Walk(gymnasium.Env):
    """Adds the action to a position; `script` replaces what a step (1-based) returns."""

    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def __init__(self, script=None, drift=0.0):
        self.script, self.drift = script or {}, drift

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=2).astype(np.float32)
        self.count = 0
        return {"position": self.position}, self.script.get(0, {})

    def step(self, action):
        self.count += 1
        self.position += action  # in place: whoever keeps the observation must copy it
        self.position += np.float32(self.drift)
        answer = {"reward": 1.0, "terminated": False, "truncated": self.count == 5, "info": {}} | self.script.get(
            self.count, {}
        )
        return {"position": self.position}, answer["reward"], answer["terminated"], answer["truncated"], answer["info"]


class Forbidden:
    def reset(self):
        raise AssertionError("a replay must not touch the policy")

    def act(self, observation, *, deterministic=False):
        raise AssertionError("a replay must not call the policy")


class Takeover:
    """A person pushes right at steps 2 and 3."""

    def reset(self):
        self.count = 0

    def override(self, observation, proposed):
        self.count += 1
        if self.count in (2, 3):
            return np.array([1.0, 0.0], np.float64), ActionSource.HUMAN
        return proposed, ActionSource.POLICY


def test_an_episode_is_recorded_whole():
    episode = rollout(Walk(), RandomPolicy(SPEC, 0), seed=3)
    assert len(episode) == 5 and episode.observations["position"].shape == (6, 2)
    np.testing.assert_allclose(np.diff(episode.observations["position"], axis=0), episode.actions, atol=1e-6)
    assert episode.actions.dtype == np.float32 and episode.rewards.dtype == np.float32
    assert episode.undiscounted_return == 5.0
    assert (episode.terminated, episode.truncated, episode.stop_reason) == (False, True, "time_limit")
    assert (episode.success, episode.seed, episode.instruction) == (None, 3, "walk")
    assert episode.spec_fingerprint == SPEC.fingerprint
    assert (np.diff(episode.timestamps) >= 0).all()


def test_the_same_seed_and_policy_give_the_same_episode():
    first, second = (rollout(Walk(), RandomPolicy(SPEC, 7), seed=11) for _ in range(2))
    assert first.observations["position"].tobytes() == second.observations["position"].tobytes()


def test_a_takeover_is_recorded_beside_what_was_proposed():
    episode = rollout(Walk(), RandomPolicy(SPEC, 0), seed=0, supervisor=Takeover())
    assert list(episode.sources) == [0, 1, 1, 0, 0]
    assert [(i.start, i.stop) for i in episode.interventions] == [(1, 3)]
    np.testing.assert_array_equal(episode.actions[1:3], [[1, 0], [1, 0]])
    assert not np.array_equal(episode.policy_actions[1:3], episode.actions[1:3])
    np.testing.assert_array_equal(episode.policy_actions[[0, 3, 4]], episode.actions[[0, 3, 4]])


def test_success_at_any_step_counts_and_missing_stays_missing():
    script = {
        2: {"info": {"success": True, "reward_terms": {"reach": 0.5}}},
        3: {"info": {"success": False, "reward_terms": {"reach": 0.25, "lift": 1.0}}},
    }
    episode = rollout(Walk(script), RandomPolicy(SPEC, 0), seed=0)
    assert episode.success is True
    np.testing.assert_array_equal(episode.reward_terms["reach"], [np.nan, 0.5, 0.25, np.nan, np.nan])
    np.testing.assert_array_equal(episode.reward_terms["lift"], [np.nan, np.nan, 1.0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"terminated": True, "info": {"success": True}}, "goal"),
        ({"terminated": True, "info": {"success": False}}, "failure"),
        ({"terminated": True}, "unknown"),
        ({"truncated": True}, "time_limit"),
        ({"truncated": True, "info": {"stop_reason": "sim_diverged"}}, "sim_diverged"),
    ],
)
def test_stop_reason_is_declared_or_derived_from_flags(answer, expected):
    episode = rollout(Walk({2: answer}), RandomPolicy(SPEC, 0), seed=0)
    assert len(episode) == 2 and episode.stop_reason == expected
    assert episode.terminated is answer.get("terminated", False)


def test_the_instruction_of_an_episode_comes_first():
    assert rollout(Walk({0: {"instruction": "walk north"}}), RandomPolicy(SPEC, 0), seed=0).instruction == "walk north"


@pytest.mark.parametrize("steps", [0, 1, 3, 5])
def test_a_saved_rollout_goes_on_exactly(steps):
    policy = RandomPolicy(SPEC, 1)
    whole = Rollout(Walk(), policy, seed=5, supervisor=Takeover())
    for _ in range(steps):
        whole.step()
    state, policy_state = whole.state_dict(), policy.state_dict()
    assert Rollout.resume(Walk(), Forbidden(), state).exact

    supervisor = Takeover()
    supervisor.count = steps
    policy_again = RandomPolicy(SPEC, 99)
    policy_again.load_state_dict(policy_state)
    resumed = Rollout.resume(Walk(), policy_again, state, supervisor=supervisor)
    for one in (whole, resumed):
        while not one.done:
            one.step()
    a, b = whole.episode(), resumed.episode()
    for name in ("actions", "policy_actions", "rewards", "sources"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name
    assert a.observations["position"].tobytes() == b.observations["position"].tobytes()
    assert (np.diff(b.timestamps) >= 0).all()


def test_a_replay_that_ends_elsewhere_says_so_and_can_be_cut():
    original = Rollout(Walk(), RandomPolicy(SPEC, 1), seed=5)
    for _ in range(3):
        original.step()
    state = original.state_dict()
    assert not Rollout.resume(Walk(drift=1e-6), Forbidden(), state).exact
    assert not Rollout.resume(Walk({3: {"reward": 0.5}}), Forbidden(), state).exact
    ended_early = Rollout.resume(Walk({2: {"terminated": True}}), Forbidden(), state)
    assert ended_early.done and not ended_early.exact

    resumed = Rollout.resume(Walk(drift=1e-6), Forbidden(), state)
    resumed.cut("crash")
    episode = resumed.episode()
    assert (episode.truncated, episode.terminated, episode.stop_reason, len(episode)) == (True, False, "crash", 3)


def test_episode_refuses_calls_out_of_order():
    one = Rollout(Walk(), RandomPolicy(SPEC, 0), seed=0)
    with pytest.raises(InvalidEpisode, match=r"still under way.*\n.*got: +0 steps\n.*cut\(reason\)"):
        one.episode()
    while not one.done:
        one.step()
    with pytest.raises(InvalidEpisode, match=r"The episode is over\.\n.*step 6 after 'time_limit'\n.*begin another Rollout"):
        one.step()


def test_a_reward_that_is_not_finite_is_an_error():
    with pytest.raises(InvalidEpisode, match=r"test/Walk returned a reward that is not finite\.\n.*nan at step 2.*seed 4\n"):
        rollout(Walk({2: {"reward": np.nan}}), RandomPolicy(SPEC, 0), seed=4)


def test_non_finite_action_never_reaches_environment():
    class Broken(RandomPolicy):
        def act(self, observation, *, deterministic=False):
            return np.array([0.0, np.nan], np.float32)

    environment = Walk()
    with pytest.raises(InvalidAction, match="The action holds NaN or infinity"):
        rollout(environment, Broken(SPEC, 0), seed=0)
    assert environment.count == 0


class Blind(Walk):
    """Returns an observation with NaN at one step, 0 for the reset, whatever the policy does with it."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def seen(self, found):
        observation = {"position": np.float32([0.5, np.nan])} if self.count == self.at else found[0]
        return (observation, *found[1:])

    def reset(self, *, seed=None, options=None):
        return self.seen(super().reset(seed=seed))

    def step(self, action):
        return self.seen(super().step(action))


@pytest.mark.parametrize(("at", "where"), [(0, "the reset with seed 3"), (2, "step 2 of.*seed 3"), (5, "step 5 of.*seed 3")])
def test_rollout_refuses_an_observation_of_nan_at_its_step(at, where):
    message = rf"Walk returned an observation 'position' that holds NaN or infinity\.\n.*nan at index \[1\], at {where}"
    with pytest.raises(InvalidObservation, match=message):
        rollout(Blind(at), RandomPolicy(SPEC, 0), seed=3)


@pytest.mark.parametrize(("at", "where"), [(0, "the reset of"), (2, "step 2 of the episode in"), (5, "step 5 of the")])
def test_vector_rollout_refuses_nan_at_its_step(at, where):
    made = iter([Walk(), Blind(at)])
    playing = VectorRollout(SequentialEnvironments(lambda: next(made), 2, autoreset_mode="SameStep"))
    with pytest.raises(InvalidObservation, match=rf"Walk .*'position'.*\n.*nan at index \[1\], at {where}.* environment 1\n"):
        playing.begin([3, 4])
        for _ in range(5):
            playing.step(np.zeros((2, 2), np.float32))


def test_vector_rollout_refuses_a_reward_of_nan_at_its_step():
    made = iter([Walk(), Walk({2: {"reward": np.inf}})])
    playing = VectorRollout(SequentialEnvironments(lambda: next(made), 2, autoreset_mode="SameStep"))
    playing.begin([3, 4])
    playing.step(np.zeros((2, 2), np.float32))
    with pytest.raises(InvalidEpisode, match=r"Walk returned a reward .*\n.*inf at step 2 of the episode in environment 1\n"):
        playing.step(np.zeros((2, 2), np.float32))


def test_a_random_policy_continues_where_it_was_saved():
    policy = RandomPolicy(SPEC, 0)
    assert isinstance(policy, Policy) and isinstance(policy, Stateful)
    policy.act({})
    state = policy.state_dict()
    expected = policy.act({})
    policy.load_state_dict(state)
    np.testing.assert_array_equal(policy.act({}), expected)
    discrete = RandomPolicy(EnvironmentSpec("d", SPEC.observation, choices("left", "right")), 0)
    assert {int(discrete.act({})) for _ in range(50)} == {0, 1} and discrete.act({}).dtype == np.int64


class Broken(Walk):
    """Fails at its third step as a test says."""

    def __init__(self, failure):
        super().__init__()
        self.failure = failure

    def step(self, action):
        found = super().step(action)
        return self.failure(found) if self.count == 3 else found


def raises(found):
    raise ValueError("\x1b]0;owned\x07 no\nerror: none")


FAILURES = {
    "raise": (
        raises,
        r"test/Walk raised an error in step\(\)\.\n  got:     ValueError: \\x1b\]0;owned\\x07 no\\nerror: none\n  do:  .*"
        r"test_rollout.py, line \d+, in raises",
    ),
    "no reward": (lambda found: (found[0], None, *found[2:]), "reward that is no number(.|\n)*None"),
    "rewards": (lambda found: (found[0], np.zeros(2), *found[2:]), r"reward that is no number(.|\n)*shape \(2,\)"),
    "words": (lambda found: (found[0], "much", *found[2:]), "reward that is no number(.|\n)*'much'"),
    "four values": (lambda found: found[:4], r"returned no step(.|\n)*4 values(.|\n)*terminated, truncated"),
    "nothing": (lambda found: None, r"returned no step(.|\n)*NoneType"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_rollout_says_what_an_environment_did_wrong(name):
    failure, message = FAILURES[name]
    with pytest.raises(EnvironmentFailed, match=message):
        rollout(Broken(failure), RandomPolicy(SPEC, 0), seed=0)


@pytest.mark.parametrize("name", FAILURES)
def test_sequential_environments_say_what_one_did_wrong(name):
    failure, message = FAILURES[name]
    environments = SequentialEnvironments(lambda: Broken(failure), 2)
    environments.reset(seed=0)
    with pytest.raises(EnvironmentFailed, match=message):
        for _ in range(3):
            environments.step(np.zeros((2, 2), np.float32))
    environments.close()


def test_rollout_takes_a_reward_in_an_array_of_one():
    found = rollout(Broken(lambda found: (found[0], np.array(2.5), *found[2:])), RandomPolicy(SPEC, 0), seed=0)
    assert found.rewards.tolist() == [1.0, 1.0, 2.5, 1.0, 1.0]


def test_rollout_says_that_a_reset_failed():
    class Unready(Walk):
        def reset(self, *, seed=None, options=None):
            raise ConnectionError("no simulator")

    with pytest.raises(EnvironmentFailed, match=r"in reset\(\)(.|\n)*ConnectionError: no simulator"):
        Rollout(Unready(), RandomPolicy(SPEC, 0), seed=0)


WRONG_INFO = [
    *(("executed_action", value) for value in (25, [25.0, 0.0], [np.nan, 0.0], [0.0], "left", [1.5, 0.0])),
    *(("success", value) for value in ("no", 0.3, np.nan, [True], np.array([True, False]), 2)),
    *(("costs", value) for value in (1.0, [1.0], {"force": "much"}, {"force": np.nan}, {"force": -1.0}, {3: 1.0})),
    *(("cost", value) for value in ("much", np.nan, -1.0, np.zeros(2), {"force": 1.0})),
    *((verdict, value) for verdict in ("guard", "shadow_guard") for value in (True, 1, "speed", [1], {"speed": 1})),
    *(("reward_terms", value) for value in ([1.0], 0.5, {"reach": np.nan}, {"reach": "far"}, {"reach": np.zeros(2)})),
    *(("action_source", value) for value in ("joystick", 9, 0.5, np.nan)),
    *(("measures", value) for value in (3, [3.0], {"peak": np.inf}, {"peak": None})),
    *(("stop_reason", value) for value in (3, ["goal"])),
    *(("measured_at", value) for value in ("noon", np.nan, None)),
]


@pytest.mark.parametrize(("key", "value"), WRONG_INFO)
def test_info_of_another_kind_is_one_error_that_names_it(key, value):
    with pytest.raises(EnvironmentFailed) as refused:
        rollout(Walk({2: {"info": {key: value}}}), RandomPolicy(SPEC, 0), seed=0)
    assert f"test/Walk returned an info['{key}'] that cannot be used." in str(refused.value)
    assert [line.split(":")[0].strip() for line in str(refused.value).splitlines()[1:]] == ["got", "allowed", "do"]
    environments = SequentialEnvironments(lambda: Walk({1: {"info": {key: value}}}), 2)
    environments.reset(seed=0)
    with pytest.raises(EnvironmentFailed, match=re.escape(f"info['{key}']")):
        environments.step(np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("value", [None, 3, ["success"]])
def test_info_that_is_no_dict_is_refused(value):
    with pytest.raises(EnvironmentFailed, match="test/Walk returned no info"):
        rollout(Walk({2: {"info": value}}), RandomPolicy(SPEC, 0), seed=0)
    with pytest.raises(EnvironmentFailed, match=r"metadata.*cannot be used"):
        rollout(Walk({0: {"metadata": 3}}), RandomPolicy(SPEC, 0), seed=0)


def test_info_of_numpy_types_is_right():
    info = {
        "success": np.float64(1.0),
        "executed_action": np.array([1.000001, 0.0]),  # rounded
        "costs": {"force": np.float32(0.5)},
        "guard": ("speed",),
        "reward_terms": {"reach": np.int64(1), "lift": True},
        "measures": {"peak": np.float32(2.0)},
        "action_source": np.int64(2),
        "stop_reason": None,
        "something_else": object(),
    }
    episode = rollout(Walk({2: {"info": info}}), RandomPolicy(SPEC, 0), seed=0)
    assert episode.success is True and episode.actions[1].tolist() == [1.0, 0.0]
    assert episode.metadata["guard"] == {"1": ["speed"]} and episode.sources[1] == ActionSource.GUARD
    assert episode.reward_terms["reach"][1] == 1.0 and episode.costs["force"][1] == 0.5


class OneBuffer(Walk):
    """Writes each observation and each cost into the same arrays and dicts, as fast simulators do."""

    def __init__(self, script=None, drift=0.0):
        super().__init__(script, drift)
        self.buffer, self.costs = {"position": np.zeros(2, np.float32)}, {"force": 0.0}

    def fill(self):
        self.buffer["position"][:] = self.count
        self.costs["force"] = float(self.count)
        return self.buffer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.fill(), {}

    def step(self, action):
        _, *rest = super().step(np.zeros(2, np.float32))
        rest[-1] = {"costs": self.costs, "reward_terms": self.costs}
        return self.fill(), *rest


def test_a_buffer_that_is_reused_is_copied():
    episode = rollout(OneBuffer(), RandomPolicy(SPEC, 0), seed=0)
    assert episode.observations["position"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert episode.costs["force"].tolist() == episode.reward_terms["force"].tolist() == [1, 2, 3, 4, 5]
    environments = SequentialEnvironments(OneBuffer, 2, autoreset_mode="SameStep")
    environments.reset(seed=0)
    for _ in range(5):
        observations, *_, infos = environments.step(np.zeros((2, 2), np.float32))
    assert [each["position"].tolist() for each in infos["final_obs"]] == [[5.0, 5.0]] * 2
    assert observations["position"].tolist() == [[0.0, 0.0]] * 2
