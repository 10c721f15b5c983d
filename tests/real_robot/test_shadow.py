"""Shadow runs: nothing of the judged policy reaches the arm, as the simulated plant shows, and the report counts truly."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factories import random_episode

sys.path.insert(0, str(Path(__file__).parent))

from console_operators import RIGHT, Page, start
from faulty_twin import Faults, FaultyTwin

from robo_real.clock import ManualClock
from robo_real.console.robot_console import RobotConsole
from robo_real.environment import RobotEnv
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.shadow import ScriptedCommands, ZeroCommands
from robo_real.shadow_report import shadow_report
from robo_real.twin import Twin, TwinOptions
from robo_rl.errors import InvalidAction, InvalidSetting, RobotError, RobotStopped
from robo_rl.rollout.episode import Rollout, rollout
from robo_rl.rollout.journal import Journal, recover
from robo_rl.types import ActionSource

PUSH = np.array([1, 1, -1, 1, -1], np.float32)


class Constant:
    def __init__(self, spec, action):
        self.environment_spec, self.action = spec, action

    def reset(self): ...

    def act(self, observation, *, deterministic=False):
        return self.action


class Watched(Twin):
    """Twin that keeps every joint of its plant at every tick."""

    def __init__(self, task):
        super().__init__(TwinOptions(task=task), ManualClock())
        self.seen, advance = [], self._plant.advance

        def watched():
            advance()
            self.seen.append(self._plant._physics.data.qpos.copy())

        self._plant.advance = watched


@pytest.fixture
def robots():
    """Returns a function that makes an environment over a watched twin, in step with its clock."""
    made = []

    def make(task="robo/ArmPick-v0", **settings):
        twin = FaultyTwin(Watched(task))
        robot = GuardedArm(twin, TWIN, spec=twin.spec, scene=twin)
        made.append(RobotEnv(robot, twin, **{"max_steps": 25} | settings))
        return made[-1], twin

    yield make
    for environment in made:
        environment.close()


def state_of(guard):
    """All that a guard remembers, as text."""
    parts = {**vars(guard), **{name: vars(vars(guard)[name]) for name in ("_answering", "_path", "_turning")}}
    return repr({name: value for name, value in sorted(parts.items()) if name not in ("log", "_between", "cone")})


def played(environment, policy):
    found = rollout(environment, policy, seed=3)
    environment.hold()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"action_repeat": 3, "max_steps": 9}])
def test_shadow_is_invisible_at_the_plant(robots, settings):
    plain, plant = robots(**settings)
    expected = played(plain, plain.scripted_policy(3))
    for push in (PUSH, -PUSH):
        environment, shadowed = robots(**settings)
        environment.commands = ScriptedCommands(environment.scripted_policy)
        found = played(environment, Constant(environment.environment_spec, push))
        np.testing.assert_array_equal(np.stack(shadowed.seen), np.stack(plant.seen))  # bit for bit, at every tick
        np.testing.assert_array_equal(found.actions, expected.actions)
        np.testing.assert_array_equal(found.policy_actions, np.tile(push, (len(found), 1)))
        assert set(found.sources) <= {ActionSource.SCRIPT, ActionSource.GUARD} and found.metadata["shadow"] == "scripted"


def test_zero_commands_leave_the_plant_where_it_is(robots):
    environment, twin = robots()
    environment.commands = ZeroCommands(environment.environment_spec.action)
    environment.reset(seed=3)
    twin.seen.clear()
    for _ in range(20):
        environment.step(PUSH)
    arm = np.stack(twin.seen)[:, :9]
    assert np.abs(arm - arm[0]).max() < 0.002
    environment.commands = None  # the control: the same actions move it
    twin.seen.clear()
    for _ in range(4):
        environment.step(PUSH)
    arm = np.stack(twin.seen)[:, :9]
    assert np.abs(arm - arm[0]).max() > 0.03


@pytest.mark.slow
def test_judge_says_what_apply_does_and_changes_nothing(robots):
    environment, twin = robots()
    environment.reset(seed=0)
    robot, random = environment.robot, np.random.default_rng(0)
    changed = 0
    for _ in range(60):
        robot.measure()
        action = random.uniform(-1.2, 1.2, 5)
        before, events = state_of(robot.guard), len(robot.log.recent)
        goal, commanded = robot.motion_generator.goal, robot.watchdog.commanded
        robot.judge(PUSH)
        judged = robot.judge(action)
        assert state_of(robot.guard) == before
        assert (goal, commanded, events) == (robot.motion_generator.goal, robot.watchdog.commanded, len(robot.log.recent))
        executed = robot.apply(action)
        np.testing.assert_array_equal(judged.action, executed.action)
        assert judged.reasons == executed.reasons
        changed += bool(judged.reasons)
        twin.clock.sleep(0.05)
    assert changed > 10
    robot.stop()
    with pytest.raises(RobotStopped):
        robot.judge(PUSH)


def test_shadowed_actions_are_judged_step_by_step(robots):
    environment, _ = robots()
    environment.commands = ZeroCommands(environment.environment_spec.action)
    found = played(environment, Constant(environment.environment_spec, np.array([1.5, 0, 0, 0, 1], np.float32)))
    assert found.metadata["shadow"] == "zero" and "guard" not in found.metadata
    assert all("action" in reasons for reasons in found.metadata["shadow_guard"].values())
    assert len(found.metadata["shadow_guard"]) == len(found)


def test_robot_that_stops_or_cannot_judge_ends_the_episode(robots, monkeypatch):
    environment, twin = robots()
    environment.commands = ZeroCommands(environment.environment_spec.action)
    environment.reset(seed=0)
    environment.step(PUSH)
    twin.inject(Faults(push=400.0))
    info = environment.step(PUSH)[4]
    assert info["stop_reason"] == "safety" and "hard_force" in info["guard"] and info["shadow_guard"] == []
    twin.inject(Faults())
    environment.robot.rearm()
    environment.reset(seed=0)
    monkeypatch.setattr(environment.robot, "judge", lambda action: throw(RobotError("no such route")))
    with pytest.raises(RobotError, match="no such route"):  # a report without verdicts would lie
        environment.step(PUSH)


def throw(error):
    raise error


def test_policy_that_is_not_finite_ends_the_run_before_a_motion(robots):
    environment, _ = robots()
    environment.commands = ScriptedCommands(environment.scripted_policy)
    with pytest.raises(InvalidAction):
        rollout(environment, Constant(environment.environment_spec, np.full(5, np.nan, np.float32)), seed=0)
    assert environment.robot.motion_generator.goal is None


def test_journal_keeps_verdicts_of_a_shadow_run(robots, tmp_path):
    environment, _ = robots()
    environment.commands = ZeroCommands(environment.environment_spec.action)
    under_way = Rollout(environment, Constant(environment.environment_spec, 1.5 * PUSH), seed=0)
    with Journal(tmp_path, "episode", under_way.spec) as journal:
        journal.begin(under_way.observation, seed=0, instruction=None, source="run")
        for _ in range(3):
            journal.step(under_way.step())
    recovered, _ = recover(journal.path)
    assert set(recovered.metadata["shadow_guard"]) == {"0", "1", "2"}
    assert list(recovered.sources) == [ActionSource.SCRIPT] * 3


def test_report_equals_differences_by_hand(robots):
    environment, _ = robots()
    spec = environment.environment_spec
    commands = np.zeros((4, 5), np.float32)
    policy = commands.copy()
    policy[:, 0] = [0.2, -0.2, 0.2, 1.0]  # of 15 mm
    policy[:, 4], commands[:, 4] = [1, 1, -1, -1], [1, -1, -1, -1]
    episode = replace(
        random_episode(spec, 4),
        actions=commands,
        policy_actions=policy,
        sources=np.array([ActionSource.SCRIPT] * 3 + [ActionSource.GUARD], np.int8),
        metadata={"shadow": "scripted", "guard": {"3": ["box"]}, "shadow_guard": {"0": ["box", "rate"], "3": ["box"]}},
    )
    found = shadow_report([episode, episode], spec.action)
    assert (found.episodes, found.steps, found.compared, found.changed) == (2, 8, 6, 4)
    x, y = found.axes[:2]
    assert (x.name, x.unit) == ("dx", "m") and x.rms == pytest.approx(0.003) and x.bias == pytest.approx(0.001)
    assert y.rms == x.commanded == pytest.approx(0.0, abs=1e-9) and len(found.axes) == 4
    assert found.gripper_agreement == pytest.approx(2 / 3) and found.reasons == {"box": 4, "rate": 2}
    assert "dx       RMS 0.003 m" in str(found) and "50.0% of the policy's actions (box 4, rate 2)" in str(found)


def test_report_of_a_person_compares_their_steps_alone(robots):
    environment, _ = robots()
    spec = environment.environment_spec
    sources = np.array([ActionSource.SCRIPT, ActionSource.HUMAN, ActionSource.SCRIPT, ActionSource.SCRIPT], np.int8)
    episode = replace(random_episode(spec, 4), sources=sources, metadata={"shadow": "person"})
    assert shadow_report([episode], spec.action).compared == 1
    none = shadow_report([replace(episode, sources=np.full(4, ActionSource.SCRIPT, np.int8))], spec.action)
    assert none.axes == () and none.gripper_agreement is None and "compare  no step" in str(none)
    with pytest.raises(InvalidSetting, match="not the episodes of one shadow run"):
        shadow_report([replace(episode, metadata={})], spec.action)


@pytest.mark.slow
def test_person_drives_in_a_shadow_run_of_the_console(serve, unhurried):
    server = serve(unhurried, task="robo/ArmPick-v0")
    console = RobotConsole(
        server.url, policy_for=lambda made: Constant(made.environment_spec, -PUSH), settings={"max_steps": 400}, shadow=True
    )
    kept = []
    console.on_episode = kept.append
    thread = console.start()
    hand = server.application.robot.driver._plant._physics
    try:
        page = Page(console)
        page.say(kind="sit")
        start(page)
        before = hand.gripper_position.copy()
        page.until(lambda told: told["steps"] > 12)
        assert np.abs(hand.gripper_position - before).max() < 0.003  # the policy pushes with all it has
        page.held, page.action = True, RIGHT
        page.until(lambda told: told["human_steps"] > 8)
        page.held = False
        page.until(lambda told: told["acts"] == "script")
        assert hand.gripper_position[1] - before[1] > 0.02
        page.say(kind="label", label="failure")
        page.until(lambda told: told["state"] == "waiting")
    finally:
        console.close()
        thread.join(20)
    report = shadow_report(kept, console.environment.environment_spec.action)
    assert report.commands == "person" and 8 < report.compared < report.steps
    y = report.axes[1]
    assert y.bias == pytest.approx(-0.0195, abs=0.003) and y.commanded == pytest.approx(0.0045, abs=0.001)
