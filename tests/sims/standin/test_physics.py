"""Both bicycles beside what can be worked out by hand, and vectors beside single vehicles."""

import numpy as np
import pytest

pytest.importorskip("msgpack")

from carla_standin.physics import dynamic, kinematic
from carla_standin.physics.parameters import BY_NAME, VEHICLES
from carla_standin.physics.state import Controls, Parameters, State
from factories import rest_slow

CAR = BY_NAME["vehicle.tesla.model3"]
STEPS = {"kinematic": kinematic.step, "dynamic": dynamic.step}


def made(*vehicles, **controls: float) -> tuple[State, Controls, Parameters]:
    state, wanted = State(len(vehicles)), Controls(len(vehicles))
    for name, value in controls.items():
        getattr(wanted, name)[:] = value
    return state, wanted, Parameters(vehicles)


@pytest.mark.parametrize("model", STEPS)
def test_car_accelerates_and_brakes_as_documented(model):
    state, controls, parameters = made(CAR, throttle=1.0)
    seconds = 0.0
    while state.forward[0] < 100 / 3.6:
        STEPS[model](state, controls, parameters, 0.05)
        seconds += 0.05
    assert 5.0 < seconds < 9.5
    start = state.x[0]
    controls.throttle[:], controls.brake[:] = 0.0, 1.0
    while state.forward[0] > 0:
        STEPS[model](state, controls, parameters, 0.05)
    assert 38 < state.x[0] - start < 47 and state.forward[0] == 0.0
    assert (state.y[0], state.yaw[0]) == (0.0, 0.0)


@pytest.mark.parametrize("model", STEPS)
def test_a_car_that_nobody_moves_stays_where_it_is_to_the_bit(model):
    state, controls, parameters = made(CAR, brake=1.0, steer=0.5)
    state.x[:], state.y[:], state.yaw[:] = 1.25, -3.0, 180.0
    for _ in range(50):
        STEPS[model](state, controls, parameters, 0.05)
    assert (state.x[0], state.y[0], state.yaw[0], state.forward[0]) == (1.25, -3.0, 180.0, 0.0)


@pytest.mark.parametrize("model", STEPS)
def test_backwards_it_goes_back_and_turns_the_other_way(model):
    state, controls, parameters = made(CAR, throttle=0.5, steer=0.5, direction=-1.0)
    for _ in range(40):
        STEPS[model](state, controls, parameters, 0.05)
    assert state.forward[0] < -2 and state.yaw[0] < -10


def turning_rate(model: str, speed: float, steer: float) -> float:
    """Returns the yaw rate [rad/s] that settles at a speed that is held."""
    state, controls, parameters = made(CAR, steer=steer)
    for _ in range(200):
        state.forward[:] = speed
        STEPS[model](state, controls, parameters, 0.02)
    return float(state.turning[0])


def test_dynamic_car_turns_kinematically_until_tyres_slip():
    assert turning_rate("dynamic", 1.5, 0.5) == pytest.approx(turning_rate("kinematic", 1.5, 0.5), rel=0.05)
    # Neutral steer: half of the mass on either axle, so v / L up to the grip.
    wheel = np.radians(CAR.max_steer * 0.05)
    assert turning_rate("dynamic", 12.0, 0.05) == pytest.approx(12.0 * wheel / CAR.wheelbase, rel=0.05)
    fast = turning_rate("dynamic", 30.0, 1.0)
    assert 0 < fast * 30.0 <= CAR.grip * 9.81 * 1.02


def test_grip_bounds_the_kinematic_car_too():
    assert turning_rate("kinematic", 30.0, 1.0) * 30.0 == pytest.approx(CAR.grip * 9.81, rel=1e-2)


@pytest.mark.parametrize("model", rest_slow(STEPS))
def test_many_vehicles_at_once_move_as_each_alone(model):
    random = np.random.default_rng(0)
    together = made(*VEHICLES)
    alone = [made(vehicle) for vehicle in VEHICLES]
    for _ in range(60):
        for name in ("throttle", "steer", "brake"):
            values = random.uniform(-1 if name == "steer" else 0, 0.3 if name == "brake" else 1, len(VEHICLES))
            getattr(together[1], name)[:] = values
            for number, (_, controls, _) in enumerate(alone):
                getattr(controls, name)[:] = values[number]
        STEPS[model](*together, 0.05)
        for one in alone:
            STEPS[model](*one, 0.05)
    for name in vars(State(0)):
        each = np.concatenate([getattr(state, name) for state, _, _ in alone])
        assert np.allclose(getattr(together[0], name), each, rtol=0, atol=1e-9), name
        assert np.isfinite(each).all()


@pytest.mark.slow
def test_dynamic_model_is_stable_at_large_steps_and_full_lock():
    state, controls, parameters = made(*VEHICLES, throttle=1.0, steer=1.0)
    for _ in range(400):
        dynamic.step(state, controls, parameters, 0.1)
    assert (np.abs(state.turning) < 5).all() and (np.abs(state.sideways) < 30).all()
