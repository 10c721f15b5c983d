"""A robot as an environment: what was made for the simulated arm runs on the twin, and what does not fit is refused."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from factories import rest_slow
from robo_datasets.dataset import Dataset
from robo_datasets.repair import repair
from robo_papers.safety_filters.barrier_filter import FilteredEnv
from robo_real.arm_spec import arm_spec
from robo_real.auto_rearm import with_auto_rearm
from robo_real.clock import ControlLoop, ManualClock
from robo_real.environment import RobotEnv
from robo_real.fake_reach import fake_reach
from robo_real.guard import Mode
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.twin import Twin, TwinOptions
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RobotStopped, SpecMismatch, UnknownName
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout.episode import Rollout, rollout
from robo_rl.rollout.journal import Journal, recover
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import ActionSource
from robo_sims.arm.environment import ARM_ARRAYS


def lockstep(task, **arguments) -> RobotEnv:
    """Returns a twin on a clock that passes only while someone waits: fast, and the same every time."""
    twin = Twin(TwinOptions(task=task), ManualClock())
    return RobotEnv(GuardedArm(twin, TWIN, spec=twin.spec, scene=twin), twin, **arguments)


def test_unexecuted_step_leaves_gripper_at_its_target():
    environment = lockstep("robo/ArmPick-v0", action_repeat=3)
    environment.reset(seed=0)
    opened = np.array([0, 0, 0, 0, 0.5], np.float32)
    environment.step(opened)
    environment.robot.stop()
    *_, truncated, info = environment.step(opened)
    assert truncated and info["stop_reason"] == "safety"
    np.testing.assert_allclose(info["executed_action"], opened, atol=1e-6)
    environment.robot.rearm()
    environment.reset(seed=0)
    environment.robot.stop()
    executed = environment.step(np.array([0, 0, 0, 0, -1], np.float32))[-1]["executed_action"]
    assert executed[4] > 0.9, "as wide as measured, where nothing was sent yet"


# the same spec


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("task", ["ArmReach-v0", "ArmPick-v0", "ArmPush-v0", "ArmPegInsert-v0"])
def test_the_twin_has_the_spec_of_the_simulated_task(task, repeat):
    simulated = make_environment(f"robo/{task}", action_repeat=repeat).get_wrapper_attr("environment_spec")
    assert lockstep(f"robo/{task}", action_repeat=repeat).environment_spec.differences(simulated) == []


def test_any_arm_has_fields_of_the_simulated_one():
    simulated = make_environment("robo/ArmReach-v0").get_wrapper_attr("environment_spec")
    bare = arm_spec("a robot")
    assert bare.observation.arrays == ARM_ARRAYS
    assert bare.action == simulated.action


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda spec: replace(spec, action=replace(spec.action, control_period=0.1)), "action.control_period: 0.1 here, 0.05"),
        (lambda spec: replace(spec, action=replace(spec.action, frame="world")), "action.frame: 'world' here, 'base'"),
        (lambda spec: replace(spec, action=replace(spec.action, units=("mm", *spec.action.units[1:]))), "'mm'"),
    ],
)
def test_policy_of_other_unit_frame_or_rate_is_refused(serve, change, told):
    environment = make_environment(f"robot:{serve().url}")
    policy = environment.get_wrapper_attr("scripted_policy")(0)
    policy.environment_spec = change(policy.environment_spec)
    with pytest.raises(SpecMismatch, match=told):
        evaluate(policy, environment, seeds=range(1))
    environment.close()


def test_stop_of_the_guard_loses_no_finished_episode():
    environment, kept = lockstep("robo/ArmReach-v0", action_repeat=3, max_steps=4), []

    def stop_after_two(episode):
        if episode.seed == 1:
            environment.robot.stop("a person")

    with pytest.raises(RobotStopped):
        evaluate(
            environment.scripted_policy(0), environment, seeds=range(5), on_episode=stop_after_two, on_incomplete=kept.append
        )
    (found,) = kept
    assert found.seeds == (0, 1) and len(found.returns) == 2 and found.commands.total == sum(found.lengths)
    assert "after 2 of 5 episodes: RobotStopped" in found.early_end and "a person" in found.early_end
    environment.close()


# a simulated person beside a twin


def test_simulated_person_rearms_only_twins(serve_in_step, beside):
    server, said = serve_in_step(), []
    alone = beside(server)
    environment = with_auto_rearm(alone, said.append)
    environment.reset(seed=0)
    alone.robot.stop()
    with pytest.raises(RobotStopped):
        alone.reset(seed=0)
    environment.reset(seed=0)
    (told,) = said
    assert re.fullmatch(r"the guard stopped the arm \(stop: .*\): the simulated person re-arms it", told)
    by = [event["by"] for event in server.application.robot.log.recent if event["event"] == "rearm"]
    assert by == ["the simulated person"] and server.application.robot.guard.mode is Mode.ARMED
    server.application.robot.driver.is_simulated = False
    as_if_real = beside(server)
    assert with_auto_rearm(as_if_real, said.append) is as_if_real
    for each in (environment, as_if_real):
        each.close()


# fingers that stay closed

PEG = {"control": "end_effector_delta_closed", "action_repeat": 2}


def test_closed_gripper_is_absent_from_action_and_sim_spec():
    simulated = make_environment("robo/ArmPegInsert-v0", **PEG)
    twin = lockstep("robo/ArmPegInsert-v0", **PEG)
    assert twin.environment_spec.differences(simulated.get_wrapper_attr("environment_spec")) == []
    assert twin.environment_spec.action.names == ("dx", "dy", "dz", "turn") and twin.action_space == simulated.action_space


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "holds"), [(PEG, True), ({"action_repeat": 2}, False)], ids=["closed", "free"])
def test_closed_gripper_holds_peg_under_random_policy(settings, holds):
    environment = lockstep("robo/ArmPegInsert-v0", **settings)
    environment.reset(seed=0)
    environment.action_space.seed(0)
    for _ in range(30):
        action = environment.action_space.sample()
        observation, *_, info = environment.step(action)
        assert info["executed_action"].shape == action.shape
    held = abs(observation["gripper_opening"][0] - 0.02) < 0.002
    assert held == holds and environment.robot.spec.action.size == 5


def test_closed_gripper_grasps_inserted_object():
    environment = lockstep("robo/ArmPegInsert-v0", **PEG)
    environment.reset(seed=0)
    environment.robot.grip(0.05)
    *_, info = environment.step(np.zeros(4, np.float32))
    assert environment.robot.guard.target.opening == 0.0 and info["guard"] == []


def test_closed_and_free_gripper_policies_do_not_mix():
    free, closed = lockstep("robo/ArmPegInsert-v0", action_repeat=2), lockstep("robo/ArmPegInsert-v0", **PEG)
    names = r"action.names: \['dx', 'dy', 'dz', 'turn'\] here, \['dx', 'dy', 'dz', 'turn', 'gripper_opening'\] there"
    with pytest.raises(SpecMismatch, match=names):
        evaluate(closed.scripted_policy(0), free, seeds=range(1))
    with pytest.raises(SpecMismatch, match=r"action.names: .*'gripper_opening'\] here, \['dx', 'dy', 'dz', 'turn'\] there"):
        evaluate(free.scripted_policy(0), closed, seeds=range(1))


def test_another_control_mode_and_a_task_that_grasps_are_told():
    with pytest.raises(UnknownName, match=r"end_effector_delta_closed"):
        lockstep("robo/ArmPegInsert-v0", control="joint_position")
    with pytest.raises(InvalidSetting, match="ArmPick-v0 needs fingers that move"):
        lockstep("robo/ArmPick-v0", **PEG).scripted_policy(0)


# the same behaviour


@pytest.mark.parametrize("task", rest_slow(["ArmPick-v0", "ArmReach-v0", "ArmPush-v0", "ArmPegInsert-v0"]))
def test_scripted_sim_policy_succeeds_on_twin(task):
    environment = lockstep(f"robo/{task}")
    results = [rollout(environment, environment.scripted_policy(seed), seed=seed) for seed in range(4)]
    assert [episode.success for episode in results] == [True] * 4
    simulated = make_environment(f"robo/{task}")
    lengths = [len(rollout(simulated, simulated.unwrapped.scripted_policy(seed), seed=seed)) for seed in range(4)]
    assert np.mean([len(episode) for episode in results]) < 1.3 * np.mean(lengths)


@pytest.mark.slow
def test_the_scripted_policy_inserts_the_peg_with_closed_fingers():
    environment = lockstep("robo/ArmPegInsert-v0", **PEG)
    assert all(rollout(environment, environment.scripted_policy(seed), seed=seed).success for seed in range(4))


@pytest.mark.slow
def test_three_period_action_is_divided():
    environment = lockstep("robo/ArmPick-v0", action_repeat=3)
    episode = rollout(environment, environment.scripted_policy(0), seed=0)
    assert episode.success
    np.testing.assert_allclose(episode.actions[:-1], episode.policy_actions[:-1], atol=0.02)  # success cuts the last one short


def test_twin_episode_starts_at_simulated_pose(serve_in_step, beside):
    environment = beside(serve_in_step())
    simulated = make_environment("robo/ArmReach-v0")
    for seed in (0, 7):
        ours, theirs = environment.reset(seed=seed)[0], simulated.reset(seed=seed)[0]
        np.testing.assert_array_equal(ours["goal_position"], theirs["goal_position"])
        np.testing.assert_allclose(ours["end_effector_position"], theirs["end_effector_position"], atol=1e-3)
    environment.close()


@pytest.mark.slow
def test_a_policy_reaches_over_http(serve_in_step, beside):
    environment = beside(serve_in_step())
    evaluation = evaluate(environment.scripted_policy(0), environment, seeds=range(2))
    assert evaluation.successes == (True, True)
    environment.close()


def test_an_episode_over_http_takes_the_time_that_it_takes(serve):
    environment = make_environment(f"robot:{serve(replace(TWIN, late_in_a_row=1000)).url}")
    evaluation = evaluate(environment.get_wrapper_attr("scripted_policy")(0), environment, seeds=range(1))
    assert evaluation.lengths[0] > 10 and evaluation.duration > 0.8 * 0.05 * evaluation.lengths[0]
    environment.close()


def test_a_twin_runs_faster_than_time_where_it_is_told_to(serve):
    environment = make_environment(f"robot:{serve(speed=4.0).url}")
    environment.reset(seed=0)
    earlier, twin_before, before = time.monotonic(), environment.robot.clock.now(), time.monotonic()
    for _ in range(10):
        environment.step(np.array([0, 0, 0, 0, 1], np.float32))
    after, twin_after, later = time.monotonic(), environment.robot.clock.now(), time.monotonic()
    assert twin_after - twin_before >= 10 * 0.05 - 1e-6
    assert 4 * (after - before) <= twin_after - twin_before <= 4 * (later - earlier)
    environment.close()


# addresses


@pytest.mark.slow
@pytest.mark.parametrize("over_http", [False, True])
def test_times_of_an_episode_are_those_of_its_measurements(over_http, serve_in_step, beside, tmp_path):
    """The twin's clock passes while somebody waits: what arrives within milliseconds was measured 50 ms apart."""
    environment = beside(serve_in_step()) if over_http else lockstep("robo/ArmReach-v0")
    robot, stamps = environment.robot, []
    observe = robot.observe

    def noted():
        found = observe()
        stamps.append(robot.measured_at)
        return found

    robot.observe = noted
    policy = environment.scripted_policy(seed=0)
    under_way = Rollout(environment, policy, seed=0)
    with Journal(tmp_path, "episode", under_way.spec) as journal:
        journal.begin(under_way.observation, seed=0, instruction=None, source="run")
        for _ in range(6):
            journal.step(under_way.step())
        robot.stop()
        journal.step(under_way.step())  # nothing is measured any more
    episode, (recovered, _) = under_way.episode(), recover(journal.path)
    np.testing.assert_array_equal(episode.timestamps[:7], stamps)
    np.testing.assert_allclose(np.diff(stamps), 0.05, atol=0.011)
    np.testing.assert_array_equal(recovered.timestamps[1:7], stamps[1:])
    for times in (episode.timestamps, recovered.timestamps):
        assert len(times) == 8 and (np.diff(times) > 0).all()
    environment.close()


def test_invalid_address_and_setting_are_explained():
    with pytest.raises(InvalidSetting, match="robot:http://HOST:PORT"):
        make_environment("robot:localhost")
    with pytest.raises(UnknownName, match="action_repeat"):
        make_environment("robot:http://127.0.0.1:9?action_repaet=3")
    with pytest.raises(UnknownName, match="control"):
        make_environment("robot/Fake-v0", control="joint_position")
    with pytest.raises(UnknownName, match="have no addresses"):
        make_environment("robo:http://127.0.0.1:9")


# episodes


def test_an_interrupted_episode_is_not_gone_through_again():
    environment = fake_reach()
    started = Rollout(environment, _Still(environment.environment_spec), seed=0)
    for _ in range(3):
        started.step()
    arm = environment.robot.driver
    sent = len(arm.sent)
    resumed = Rollout.resume(environment, _Still(environment.environment_spec), started.state_dict())
    assert not resumed.exact and len(resumed) == 0 and len(arm.sent) == sent


@pytest.mark.slow
def test_what_a_guard_changed_is_stored_by_the_rollout():
    environment = fake_reach()
    environment.robot.guard._high[0] = 0.462
    episode = rollout(environment, _Still(environment.environment_spec, along=1.0), seed=0)
    assert {reason for reasons in episode.metadata["guard"].values() for reason in reasons} == {"box"}
    assert (episode.policy_actions[:, 0] == 1.0).all() and episode.actions[-1, 0] < 0.2


def test_a_step_after_the_end_asks_for_a_reset():
    environment = fake_reach(max_steps=1)
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(np.zeros(5, np.float32))
    environment.reset(seed=0)
    assert environment.step(np.zeros(5, np.float32))[3]
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(np.zeros(5, np.float32))


def test_killed_recorder_loses_at_most_one_step(serve, tmp_path):
    program = Path(__file__).with_name("record_and_hang.py")
    command = [sys.executable, str(program), serve().url, str(tmp_path / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for _ in range(7):
        told = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    with Dataset(tmp_path / "data").writer() as writer:
        repair(writer)
    dataset = Dataset(tmp_path / "data")
    (entry,) = dataset.entries()
    episode = dataset.read(entry)
    assert len(episode) >= told
    assert (episode.stop_reason, episode.truncated) == ("crash", True)


# the loop


class Stumbling(ManualClock):
    """Sleeps too long now and then."""

    def __init__(self, extra):
        super().__init__()
        self._extra = iter(extra)

    def sleep(self, seconds):
        super().sleep(max(seconds, 0.0) + next(self._extra, 0.0))


def test_the_loop_keeps_its_grid_and_counts_overruns():
    clock = Stumbling([0.0, 0.02, 0.0, 0.07, 0.0])
    loop = ControlLoop(clock, 0.05)
    late = [loop.wait() for _ in range(5)]
    np.testing.assert_allclose(late, [0, 0.02, 0, 0.07, 0], atol=1e-9)
    assert loop.overruns == 1
    np.testing.assert_allclose(clock.now(), 5 * 0.05 + 0.07, atol=1e-9)  # after an overrun nothing is made up for


class _Still:
    def __init__(self, spec: EnvironmentSpec, along: float = 0.0) -> None:
        self.environment_spec, self._along = spec, along

    def reset(self):
        pass

    def act(self, observation, *, deterministic=False):
        return np.array([self._along, 0, 0, 0, 1], np.float32)


@pytest.mark.slow
def test_safety_filter_keeps_the_twin_in_a_box_behind_its_guard():
    """The plant tells where the gripper went, and the episode who chose each action."""
    box = [[0.4, -0.1, 0.1], [0.55, 0.1, 0.25]]

    class Outwards:
        def __init__(self, spec):
            self.environment_spec = spec

        def reset(self):
            """Do nothing."""

        def act(self, observation, *, deterministic=False):
            """Return an action towards a corner."""
            return np.array([1, 1, 1, 0, 0], np.float32)

    reached = {}
    for is_on in (True, False):
        environment = FilteredEnv(lockstep("robo/ArmReach-v0"), box=box, is_on=is_on)
        episode = rollout(environment, Outwards(environment.get_wrapper_attr("environment_spec")), seed=0)
        reached[is_on] = (episode.observations["end_effector_position"] - np.array(box[1])).max()
        assert (episode.sources == ActionSource.GUARD).any() == is_on or not is_on
    assert reached[True] < 0.006 and reached[False] > 0.02
