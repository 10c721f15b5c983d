"""The guard: what it lets through stays within the limits, whatever is commanded and whatever is measured."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robo_real.arm import ArmState, ArmTarget
from robo_real.audit_log import AuditLog
from robo_real.guard import Guard, Mode
from robo_real.limits import TWIN
from robo_real.rotations import DOWN, between, from_rotation_vector, multiply, pointing_down, tilt_and_turn
from robo_rl.errors import InvalidSetting, RobotStopped

PERIOD = 0.05
HERE = np.array([0.46, 0.0, 0.24])
JOINTS = np.array([0.0, -0.3, 0.0, -2.3, 0.0, 2.0, 0.78])
JACOBIAN = np.random.default_rng(0).normal(0, 0.4, (6, 7))


def state(position=HERE, quaternion=DOWN, *, stamp=0.0, joints=None, force=(0.0, 0.0, 0.0), fault=None, jacobian=None):
    return ArmState(
        stamp=stamp,
        position=np.asarray(position, float),
        quaternion=quaternion,
        velocity=np.zeros(6),
        force=np.asarray(force, float),
        torque=np.zeros(3),
        joint_position=np.asarray(JOINTS + 1e-4 * np.sin(50 * stamp) if joints is None else joints, float),
        joint_velocity=np.zeros(7),
        jacobian=np.zeros((6, 7)) if jacobian is None else jacobian,
        opening=0.04,
        fault=fault,
    )


def armed(limits=TWIN) -> Guard:
    guard = Guard(limits, PERIOD, AuditLog())
    guard.connected()
    guard.arm()
    return guard


def judged(guard, target, measured, now=None):
    now = measured.stamp if now is None else now
    return guard.judge(target, measured, observed=measured.stamp, now=now)


def near(offset, opening=0.04, quaternion=DOWN):
    return ArmTarget(HERE + np.asarray(offset, float), quaternion, opening)


# what passes and what is bounded


def test_a_small_step_passes_unchanged():
    verdict = judged(armed(), near([0.01, -0.005, 0.0]), state())
    assert verdict.reasons == ()
    np.testing.assert_allclose(verdict.target.position, HERE + np.array([0.01, -0.005, 0.0]))


@pytest.mark.parametrize(
    ("target", "measured", "reason"),
    [
        (near([0.05, 0, 0]), state(), "reach"),
        (ArmTarget(np.array([0.71, 0.0, 0.24]), DOWN, 0.04), state([0.695, 0.0, 0.24]), "box"),
        (near([0, 0, 0], quaternion=multiply(from_rotation_vector([0.4, 0, 0]), DOWN)), state(), "cone"),
        (near([0, 0, 0], quaternion=pointing_down(0.3)), state(), "turn_rate"),
        (near([0, 0, 0], opening=0.2), state(), "opening"),
        (near([0, 0, -0.01]), state(force=[0, 0, 50.0]), "soft_force"),
        (near([0, 0, 0.01]), state(joints=[*JOINTS[:5], 3.7525, 0.78], jacobian=JACOBIAN), "joint_limit"),
    ],
)
def test_what_goes_too_far_is_shortened_and_the_reason_is_told(target, measured, reason):
    limits = replace(TWIN, turn_speed=2.0) if reason == "turn_rate" else TWIN
    guard = armed(limits)
    verdict = judged(guard, target, measured)
    assert reason in verdict.reasons
    assert guard.log.recent[-1]["reasons"] == list(verdict.reasons)
    assert guard.mode is Mode.RUNNING


def test_guard_is_idempotent():
    guard = armed()
    first = judged(guard, near([0.05, 0.05, 0.05]), state()).target
    again = judged(armed(), first, state())
    assert again.reasons == ()
    np.testing.assert_allclose(again.target.position, first.position)


def test_pressing_on_is_forbidden_and_going_back_is_not():
    guard = armed()
    back = judged(guard, near([0, 0, 0.01]), state(force=[0, 0, 50.0]))
    assert "soft_force" not in back.reasons
    assert back.target.position[2] > HERE[2]


def test_speeding_up_is_limited_and_stopping_is_not():
    guard = armed(replace(TWIN, acceleration=1.0))
    positions, stamp = [HERE], 0.0
    for _ in range(8):
        stamp += PERIOD
        verdict = judged(
            guard, ArmTarget(positions[-1] + np.array([0.015, 0, 0]), DOWN, 0.04), state(positions[-1], stamp=stamp)
        )
        positions.append(verdict.target.position)
    speeds = np.linalg.norm(np.diff(positions, axis=0), axis=1) / PERIOD
    assert speeds[0] <= 0.0501 and (np.diff(speeds) <= 0.0501).all()  # 1 m/s^2 is 0.05 m/s in a period
    stop = judged(guard, ArmTarget(positions[-1], DOWN, 0.04), state(positions[-1], stamp=stamp + PERIOD))
    np.testing.assert_allclose(stop.target.position, positions[-1])


@pytest.mark.parametrize("wait", [0.001, 0.002, 0.005, 0.01, 0.05])
def test_speed_is_the_same_however_often_commands_come(wait):
    limits = replace(TWIN, speed=0.1, acceleration=1.0, reach=0.01)
    guard, hand, stamp = armed(limits), HERE, 0.0
    for _ in range(round(0.5 / wait)):
        stamp += wait
        verdict = judged(guard, ArmTarget(hand + np.array([0.009, 0, 0]), DOWN, 0.04), state(hand, stamp=stamp))
        hand = verdict.target.position
    assert (hand - HERE)[0] <= 0.1 * (0.5 + PERIOD)


@pytest.mark.parametrize("norm", [0.6, 0.9, 1.3])
def test_quaternions_near_unit_norm_are_normalised_and_noted(norm):
    verdict = judged(armed(), near([0, 0, 0], quaternion=(0.0, norm, 0.0, 0.0)), state())
    assert verdict.reasons == ("quaternion",)
    np.testing.assert_allclose(verdict.target.quaternion, DOWN)


# what is refused


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda guard: guard.judge(near([0.01, 0, 0]), state(stamp=1.0), observed=0.7, now=1.0), "late"),
        (lambda guard: guard.judge(near([0.01, 0, 0]), state(stamp=1.0), observed=1.5, now=1.0), "late"),
        (lambda guard: guard.judge(near([0.01, 0, 0]), state(stamp=0.5), observed=1.0, now=1.0), "state_late"),
        (lambda guard: guard.judge(near([0.2, 0, 0]), state(stamp=1.0), observed=1.0, now=1.0), "jump"),
    ],
)
def test_a_command_is_refused_and_the_next_one_is_not(make, reason):
    guard = armed()
    verdict = make(guard)
    assert verdict.target is None and verdict.reasons == (reason,)
    assert judged(guard, near([0.01, 0, 0]), state(stamp=1.0)).target is not None


def test_guard_rejects_command_on_outdated_measurement():
    guard = armed()
    judged(guard, near([0.01, 0, 0]), state(stamp=1.0))
    verdict = guard.judge(near([0.01, 0, 0]), state(stamp=1.05), observed=0.95, now=1.05)
    assert verdict.reasons == ("out_of_order",)


def test_too_many_late_commands_stop_the_arm():
    guard = armed()
    for _ in range(TWIN.late_in_a_row):
        assert guard.judge(near([0, 0, 0]), state(stamp=1.0), observed=0.0, now=1.0).target is None
    with pytest.raises(RobotStopped, match="fault: late"):
        guard.judge(near([0, 0, 0]), state(stamp=1.0), observed=0.0, now=1.0)


def test_nothing_moves_without_the_hand_on_the_dead_man_switch():
    guard = armed(replace(TWIN, dead_man=0.2))
    assert judged(guard, near([0.01, 0, 0]), state(stamp=1.0)).reasons == ("dead_man",)
    guard.enable(1.0)
    assert judged(guard, near([0.01, 0, 0]), state(stamp=1.1)).target is not None
    assert judged(guard, near([0.01, 0, 0]), state(stamp=1.3)).reasons == ("dead_man",)


# what stops the arm


@pytest.mark.parametrize(
    ("target", "measured", "reason"),
    [
        (near([np.nan, 0, 0]), state(), "not_finite"),
        (near([np.inf, 0, 0]), state(), "not_finite"),
        (near([0, 0, 0], opening=np.nan), state(), "not_finite"),
        (near([0, 0, 0], quaternion=(0.0, 0.5, 0.0, 0.0)), state(), "no_unit_quaternion"),
        (near([0, 0, 0], quaternion=(0.0, 1.6, 0.0, 0.0)), state(), "no_unit_quaternion"),
        (near([0, 0, 0], quaternion=(0.0, 0.0, 0.0, 0.0)), state(), "no_unit_quaternion"),
        (ArmTarget(np.zeros(2), DOWN, 0.0), state(), "wrong_shape"),
        (near([0, 0, 0]), state(joints=[np.nan] * 7), "state_not_finite"),
        (near([0, 0, 0]), state(force=[0, 200.0, 0]), "hard_force"),
        (near([0, 0, 0]), state(joints=[3.0, *JOINTS[1:]]), "joint_beyond_limit"),
        (near([0, 0, 0]), state(joints=JOINTS[:6]), "other_number_of_joints"),
        (near([0, 0, 0]), state([0.9, 0, 0.2]), "outside_workspace"),
        (near([0, 0, 0]), state(fault="reflex"), "robot: reflex"),
    ],
)
def test_a_fault_is_latched_until_it_is_reset_and_armed_anew(target, measured, reason):
    guard = armed()
    with pytest.raises(RobotStopped) as stopped:
        judged(guard, target, measured)
    assert (stopped.value.mode, stopped.value.reason) == ("fault", reason)
    with pytest.raises(RobotStopped):
        judged(guard, near([0, 0, 0]), state())
    with pytest.raises(RobotStopped):
        guard.arm()
    guard.reset()
    with pytest.raises(RobotStopped, match="arm it first"):
        judged(guard, near([0, 0, 0]), state())
    guard.arm()
    assert judged(guard, near([0, 0, 0]), state()).target is not None


def test_stop_after_operator_check_survives_rearm():
    guard = armed()
    guard.fault("reflex")
    looked = guard.stops
    guard.stop("red button")  # while the robot recovers; the guard is stopped already
    with pytest.raises(RobotStopped) as stopped:
        guard.reset(looked)
    assert (stopped.value.mode, stopped.value.reason) == ("stopped", "red button")
    guard.reset(guard.stops)
    assert guard.mode is Mode.IDLE and guard.reason == "" and guard.seen_stops == guard.stops == 2  # the fault, and the stop


def test_a_measurement_that_jumps_stops_the_arm():
    guard = armed()
    judged(guard, near([0.01, 0, 0]), state(stamp=1.0))
    with pytest.raises(RobotStopped, match="state_jumped"):
        judged(guard, near([0, 0, 0]), state(HERE + np.array([0, 0, 0.15]), stamp=1.01))


@pytest.mark.parametrize("turn", [2 * np.pi, -2 * np.pi + 0.05])
def test_joint_whose_encoder_turns_over_is_said_so(turn):
    guard = armed()
    judged(guard, near([0.01, 0, 0]), state(stamp=1.0))
    wrapped = [JOINTS[0] + turn, *JOINTS[1:]]
    with pytest.raises(RobotStopped, match="joint_jumped_by_a_whole_turn"):
        judged(guard, near([0, 0, 0]), state(stamp=1.01, joints=wrapped))
    guard.reset()
    guard.arm()
    with pytest.raises(RobotStopped, match="joint_beyond_limit"):  # and stays wrong if it is armed again
        judged(guard, near([0, 0, 0]), state(stamp=1.02, joints=wrapped))


def test_measurements_that_never_change_stop_an_arm_under_way():
    guard = armed()
    with pytest.raises(RobotStopped, match="state_frozen"):
        for stamp in np.arange(0.0, 1.0, PERIOD):
            judged(guard, near([0.01, 0, 0]), state(stamp=stamp, joints=JOINTS))


def test_external_stop_survives_every_mode_change():
    guard = armed()
    guard.stop("person")
    guard.connected()
    guard.pause()
    assert (guard.mode, guard.reason) == (Mode.STOPPED, "person")
    guard.fault("later")
    assert guard.reason == "person"


# limits


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, 0.0])
def test_there_is_no_guard_without_finite_limits(value):
    with pytest.raises(InvalidSetting, match="speed"):
        replace(TWIN, speed=value)


def test_limits_that_contradict_each_other_are_refused():
    for changed in ({"box_low": TWIN.box_high}, {"soft_force": 500.0}, {"hold_after": 50.0}, {"joint_speed": (1.0,)}):
        with pytest.raises(InvalidSetting):
            replace(TWIN, **changed)


# no escape

SLOW = replace(TWIN, speed=0.15, turn_speed=1.0)


wild = st.floats(allow_nan=True, allow_infinity=True, width=32)
fair = st.floats(-0.05, 0.05)
numbers = st.one_of(fair, fair, fair, st.floats(-0.3, 0.3), wild)
moments = st.one_of(st.just(PERIOD), st.floats(0.0, 0.3), st.floats(-0.1, 2.0))


@st.composite
def streams(draw, length):
    """A stream of (away, turn, tilt, opening, wait, age, frozen, pushed) for an arm that follows."""
    step = st.tuples(
        st.tuples(numbers, numbers, numbers),
        numbers,
        st.one_of(st.just(0.0), st.floats(-0.6, 0.6)),
        st.one_of(st.floats(0, 0.08), wild),
        moments,
        st.one_of(st.just(0.0), st.floats(-0.5, 1.0), wild),
        st.booleans(),
        st.one_of(st.just(0.0), st.just(0.0), st.floats(-200, 200)),
    )
    return draw(st.lists(step, min_size=length, max_size=length))


def require_inside(verdict, measured, guard, before, duration):
    """The promises: whatever is sent is finite, inside box and cone, near the hand, and no faster than allowed."""
    limits, sent = guard.limits, verdict.target
    position = sent.position
    assert np.isfinite([*position, *sent.quaternion, sent.opening]).all()
    assert (position >= np.array(limits.box_low) - 1e-6).all() and (position <= np.array(limits.box_high) + 1e-6).all()
    assert (np.abs(position - measured.position) <= limits.reach + 1e-6).all()
    tilt, turn = tilt_and_turn(sent.quaternion, limits.reference)
    assert np.linalg.norm(tilt) <= limits.tilt + 1e-4 and abs(turn) <= limits.turn + 1e-4
    assert np.linalg.norm(between(measured.quaternion, sent.quaternion)) <= limits.reach_turn + 1e-4
    assert 0.0 <= sent.opening <= limits.opening
    if before is not None:
        last = before.position
        step, room = np.abs(position - last), limits.speed * duration + 1e-6
        towards_hand = np.abs(position - measured.position) <= np.abs(last - measured.position) + 1e-6
        assert ((step <= room) | towards_hand).all()
        assert np.linalg.norm(between(before.quaternion, sent.quaternion)) <= limits.turn_speed * duration + 0.05


def play(stream, limits=SLOW, follows=0.7):
    """Runs commands against an arm that does most of what it is told; returns how many it was sent on."""
    guard, rng = armed(limits), np.random.default_rng(len(stream))
    hand, direction, now, last, last_at, sent = HERE, DOWN, 0.0, None, 0.0, 0
    for away, turn, tilt, opening, wait, age, frozen, pushed in stream:
        now += max(wait, 0.0)
        measured = state(
            hand,
            direction,
            stamp=now if not frozen else now - 0.1,
            force=[0, 0, pushed],
            joints=JOINTS + rng.normal(0, 0.01, 7),
        )
        bent = multiply(from_rotation_vector([tilt, 0, 0]), pointing_down(turn if np.isfinite(turn) else 0.0))
        wanted = ArmTarget(hand + np.array(away), bent if np.isfinite(turn) else (np.nan, 0.0, 0.0, 0.0), opening)
        ready = guard.mode in (Mode.ARMED, Mode.RUNNING)
        try:
            with np.errstate(all="ignore"):
                verdict = guard.judge(wanted, measured, observed=now - age, now=now)
        except RobotStopped:
            if ready:
                assert guard.mode is Mode.FAULT
            last = None
            if pushed > 0:  # a person re-arms now and then
                guard.reset()
                guard.arm()
            continue
        assert ready
        if verdict.target is None:
            assert verdict.reasons
            last = None
            continue
        assert np.isfinite([*wanted.position, *wanted.quaternion, wanted.opening, age]).all()
        assert -1e-6 <= age <= guard.limits.command_age + 1e-6
        require_inside(verdict, measured, guard, last, min(now - last_at, 2 * PERIOD))
        last, last_at, sent = verdict.target, now, sent + 1
        hand = hand + follows * (verdict.target.position - hand)
        direction = verdict.target.quaternion
    return sent


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(streams(20))
def test_no_command_escapes(stream):
    play(stream)


HOSTILE = [np.nan, np.inf, -np.inf, 1e308, 1e-308, 5.0]


def random_stream(seed, length, hostile, late):
    """Returns commands drawn by numpy, where hypothesis is too slow to draw so many: some hostile, some late, some frozen."""
    rng, stream = np.random.default_rng(seed), []
    for _ in range(length):
        away = rng.normal(0, 0.02, 3)
        if rng.random() < hostile:
            away[rng.integers(3)] = rng.choice(HOSTILE)
        age = float(rng.uniform(-0.5, 1.0)) if rng.random() < late else 0.0
        turn, tilt, pushed = rng.normal(0, 0.5), rng.normal(0, 0.3), 50.0 * (rng.random() < 0.1)
        stream.append((tuple(away), turn, tilt, 0.04, PERIOD, age, rng.random() < 0.1, pushed))
    return stream


@pytest.mark.slow
def test_no_command_of_ten_thousand_escapes():
    sent = 0
    for seed in range(50):
        sent += play(random_stream(seed, 200, 0.2, 0.2), (SLOW, TWIN)[seed % 2], (0.7, 0.7, 0.05)[seed % 3])
    assert sent > 1500  # or nothing was put to the proof


@pytest.mark.slow
def test_no_command_of_a_hundred_thousand_escapes():
    judged_so_far = []

    @settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
    @given(st.integers(0, 2**32), st.floats(0, 0.5), st.floats(0, 0.5), st.sampled_from([SLOW, TWIN]), st.floats(0, 1))
    def streams_of_all_kinds(seed, hostile, late, limits, follows):
        play(random_stream(seed, 200, hostile, late), limits, follows)
        judged_so_far.append(200)

    streams_of_all_kinds()
    assert sum(judged_so_far) >= 100_000


def test_a_command_is_judged_within_a_millisecond():
    guard, took, stamp = armed(), [], 0.0
    for _ in range(300):
        stamp += PERIOD
        measured = state(stamp=stamp, jacobian=JACOBIAN, joints=JOINTS + 0.001 * np.sin(stamp))
        start = time.thread_time()  # a busy machine takes time away from the process, not from this count
        judged(guard, near([0.001, 0.001, 0]), measured)
        took.append(time.thread_time() - start)
    assert np.median(took) < 1e-3
