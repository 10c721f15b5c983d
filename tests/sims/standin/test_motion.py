"""Calls that move actors other than by pedals, seen by the real client: frozen, in the air, pushed, held at a velocity."""

import math

import pytest


@pytest.mark.slow
def test_physics_off_freezes_a_car_until_it_is_on(program):
    result = program("""
        car = car(at(0, 0))
        other = spawn("vehicle.audi.a2", at(0, 8, 0.3, 90))
        ticks(1)
        car.apply_control(carla.VehicleControl(throttle=1.0))
        ticks(20)
        result["before"] = place(car)
        car.set_simulate_physics(False)
        car.apply_control(carla.VehicleControl(throttle=1.0))
        other.set_target_velocity(V(0, -3, 0))
        ticks(40)
        result["frozen"], result["speed"] = place(car), speed(car)
        car.set_transform(at(20, 0, 1.2, 30))
        ticks(1)
        result["put"] = place(car)
        car.set_simulate_physics(True)
        ticks(20)
        result["after"] = place(car)
    """)
    assert result["before"][0] > 1.0
    assert result["frozen"] == result["before"] and result["speed"] == [0.0, 0.0, 0.0]
    assert result["put"] == pytest.approx([20, 0, 1.2, 30])
    assert result["after"][0] > 21.0 and result["after"][2] == 0.0


@pytest.mark.slow
def test_actor_far_below_ground_keeps_z_and_blocks_nothing(program):
    result = program("""
        hidden = car(at(10, 0, -500))
        walker = spawn("walker.pedestrian.0001", at(6, 0, -500))
        lead = car(at(0, 0))
        ticks(1)
        result["hidden"] = place(hidden)
        result["walker"] = place(walker)
        lead.apply_control(carla.VehicleControl(throttle=1.0))
        ticks(60)
        result["passed"] = place(lead)
        result["same_place"] = world.try_spawn_actor(library.find("vehicle.audi.a2"), at(10, 0)) is not None
        result["both_below"] = world.try_spawn_actor(library.find("vehicle.audi.a2"), at(10, 0, -500)) is None
        hidden.set_transform(at(-20, 0, 0.2))
        ticks(1)
        result["shown"] = place(hidden)
        result["taken"] = world.try_spawn_actor(library.find("vehicle.audi.a2"), at(-20, 0)) is None
    """)
    assert result["hidden"] == pytest.approx([10, 0, -500, 0]) and result["walker"] == pytest.approx([6, 0, -500, 0])
    assert result["passed"][0] > 15.0
    assert result["same_place"] and result["both_below"]
    assert result["shown"] == pytest.approx([-20, 0, 0, 0], abs=1e-5) and result["taken"]


@pytest.mark.slow
def test_a_car_in_the_air_falls_and_without_gravity_stays(program):
    result = program("""
        falling, floating = car(at(0, 0, 20)), car(at(20, 0, 20))
        floating.set_enable_gravity(False)
        ticks(20)
        result["falling"], result["vz"] = place(falling), speed(falling)
        ticks(40)
        result["landed"], result["floating"] = place(falling), place(floating)
        falling.add_impulse(V(0, 0, 1850 * 6.0))
        ticks(1)
        result["thrown"] = speed(falling)
        ticks(30)
        result["again"] = place(falling)
    """)
    assert result["falling"][2] == pytest.approx(20 - 0.5 * 9.81, abs=0.3) and result["vz"][2] == pytest.approx(-9.81, abs=1e-3)
    assert result["landed"][2] == 0.0 and result["floating"][2] == pytest.approx(20)
    assert result["thrown"][2] == pytest.approx(6 - 9.81 * 0.05, abs=1e-3) and result["again"][2] == 0.0


@pytest.mark.slow
def test_constant_velocity_is_kept_in_the_cars_frame(program):
    result = program("""
        car = car(at(0, 0, yaw=90))
        ticks(1)
        car.enable_constant_velocity(V(5, 0, 0))
        car.apply_control(carla.VehicleControl(brake=1.0))
        ticks(60)
        result["straight"], result["speed"] = place(car), speed(car)
        car.apply_control(carla.VehicleControl(steer=0.5))
        ticks(40)
        result["turned"], result["still"] = place(car), speed(car)
        car.disable_constant_velocity()
        car.apply_control(carla.VehicleControl(brake=1.0))
        ticks(40)
        result["stopped"] = speed(car)
    """)
    assert result["straight"] == pytest.approx([0, 15, 0, 90], abs=0.3)
    assert result["speed"] == pytest.approx([0, 5, 0], abs=1e-3)
    assert math.hypot(*result["still"]) == pytest.approx(5, abs=1e-3) and abs(result["turned"][3] - 90) > 30
    assert math.hypot(*result["stopped"]) == 0.0
    assert "unknown call" not in result["said"]


@pytest.mark.slow
def test_impulses_forces_and_spins_move_cars_as_masses(program):
    result = program("""
        cars = [car(at(x, 0)) for x in (-60, -30, 0, 30)]
        ticks(1)
        mass = cars[0].get_physics_control().mass
        cars[0].add_impulse(V(mass * 3, 0, 0))
        cars[1].add_impulse(V(0, mass * 2, 0))
        cars[2].set_target_angular_velocity(V(0, 0, 90))
        for _ in range(10):
            cars[3].add_force(V(mass * 4, 0, 0))
            ticks(1)
            result.setdefault("forward", []).append(speed(cars[0])[0])
            result.setdefault("sideways", []).append(speed(cars[1])[1])
            result.setdefault("spin", []).append(cars[2].get_angular_velocity().z)
        result["pushed"] = speed(cars[3])[0]
        ticks(40)
        result["ends"] = [place(one) for one in cars[1:3]] + [speed(one) for one in cars[1:3]]
        heavy = 1e4 * mass * 2.9**2 / 4  # kg cm2
        client.apply_batch_sync([carla.command.ApplyAngularImpulse(cars[2].id, V(0, 0, 50 * heavy))], False)
        ticks(1)
        result["angular"] = cars[2].get_angular_velocity().z
        client.apply_batch_sync([carla.command.ApplyImpulse(cars[1].id, V(mass, 0, 0))], False)
        ticks(1)
        result["batch"] = speed(cars[1])[0]
    """)
    assert result["forward"][0] == pytest.approx(3.0, abs=0.05)
    assert 1.4 < result["sideways"][0] <= 2.01 and result["sideways"][-1] == pytest.approx(0.0, abs=1e-3)  # grip takes it
    assert 50 < result["spin"][0] <= 90.1 and result["spin"][-1] == pytest.approx(0.0, abs=0.1)
    assert result["pushed"] == pytest.approx(10 * 0.05 * (4 - 0.62), abs=0.1)
    (_, y, _, _), (_, _, _, yaw), *speeds = result["ends"]
    assert 0.1 < y < 0.6 and 5 < yaw < 30 and speeds == [[0, 0, 0], [0, 0, 0]]
    assert 0 < result["angular"] <= 50.1 and result["batch"] == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
def test_ackermann_control_reaches_angle_and_speed(program):
    result = program("""
        car = car(at(0, 0))
        ticks(1)
        car.apply_ackermann_control(carla.VehicleAckermannControl(steer=0.1, speed=6.0))
        ticks(100)
        result["speed"] = sum(part * part for part in speed(car)) ** 0.5
        result["wheel"] = car.get_wheel_steer_angle(carla.VehicleWheelLocation.FL_Wheel)
        result["throttle"] = car.get_control().throttle
        car.apply_ackermann_control(carla.VehicleAckermannControl(speed=-2.0, acceleration=1.0))
        ticks(20)
        result["slower"] = speed(car)[0]
        ticks(200)
        result["back"], result["reverse"] = speed(car), car.get_control().reverse
        car.apply_ackermann_control(carla.VehicleAckermannControl())
        ticks(80)
        result["stopped"] = speed(car)
    """)
    assert result["speed"] == pytest.approx(6.0, abs=0.15) and result["wheel"] == pytest.approx(math.degrees(0.1), abs=0.01)
    assert 0 < result["throttle"] < 0.5
    assert math.hypot(*result["back"]) == pytest.approx(2.0, abs=0.15) and result["reverse"]
    assert result["stopped"] == [0, 0, 0]


@pytest.mark.slow
def test_controls_that_do_not_stick_hold_for_one_tick(program):
    result = program("""
        def drive(repeated, reset, **attributes):
            here = car(at(0, 0), **attributes)
            ticks(2)
            here.apply_control(carla.VehicleControl(throttle=1.0))
            ticks(1)
            for _ in range(30):
                if repeated:
                    here.apply_control(carla.VehicleControl(throttle=1.0))
                if reset:
                    here.apply_control(carla.VehicleControl())
                ticks(1)
            end = place(here)[0], speed(here)[0], here.get_control().throttle
            here.destroy()
            ticks(1)
            return end
        result["sticky"] = drive(False, False)
        result["kept"] = drive(True, False, sticky_control="False")
        result["loose"] = drive(False, False, sticky_control="False")
        result["reset"] = drive(False, True)
    """)
    assert result["sticky"][:2] == result["kept"][:2] and result["sticky"][1] > 5
    assert result["loose"] == result["reset"] and result["loose"][1] < 1 and result["loose"][2] == 0.0


@pytest.mark.slow
def test_get_control_tells_what_holds_and_nan_is_said_once(program):
    result = program("""
        car = car(at(0, 0))
        car.apply_control(carla.VehicleControl(throttle=5.0, steer=-7.0, brake=-1.0))
        ticks(1)
        control = car.get_control()
        result["control"] = [control.throttle, control.steer, control.brake]
        for _ in range(3):
            car.apply_control(carla.VehicleControl(throttle=float("nan")))
            ticks(1)
        client.apply_batch([carla.command.ApplyVehicleControl(car.id, carla.VehicleControl(steer=float("inf")))])
        ticks(1)
        result["kept"] = car.get_control().throttle
    """)
    assert result["control"] == [1.0, -1.0, 0.0] and result["kept"] == 1.0
    assert result["said"].count("apply_control_to_vehicle is refused, and its client does not wait for an answer") == 1
    assert "7 finite numbers" in result["said"] and "apply_batch is refused" in result["said"]
