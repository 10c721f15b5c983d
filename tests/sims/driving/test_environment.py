"""The environment on a stand-in, through the real client."""

import pytest


@pytest.mark.slow
def test_scripted_driver_arrives_on_every_map_by_seed(driven):
    result = driven("""
        environment = FAMILY.make("Ring-v0", birdseye=0)
        environment.reset(seed=0)
        for pedal in [1.0] * 8 + [0.1] * 25:  # uncomfortable, and then not any more
            observation, *_ = environment.step(np.array([0.0, pedal], np.float32))
        remembered = np.array(environment._reward.memory_values(), np.float32)
        assert remembered.any() and (observation["reward_memory"] == remembered).all(), "a critic sees what counts next"
        environment.close()
        for task in ("Ring-v0", "Town-v0", "Highway-v0"):
            environment = FAMILY.make(task, traffic=12, birdseye=0, route_length=70.0)
            first = drive(environment, 3)
            drive(environment, 4, [0.0, 1.0])
            again = drive(environment, 3) if task == "Town-v0" else first
            other = FAMILY.make(task, traffic=12, birdseye=0, route_length=70.0)
            fresh = drive(other, 3) if task == "Town-v0" else first
            for one in (environment, other):
                one.close()
            result[task] = [first[2]["stop_reason"], first[2]["success"], first[4], first[1]]
            result[task] += [first[3] == again[3], first[3] == fresh[3]]
    """)
    for reason, success, terminated, paid, repeats, same_elsewhere in result.values():
        assert (reason, success, terminated, repeats, same_elsewhere) == ("goal", True, True, True, True)
        assert 30 < paid <= 100.5


@pytest.mark.slow
def test_episodes_end_for_what_was_done_and_rewards_say_so(driven):
    result = driven("""
        def end(act, task="Ring-v0", seed=0, **arguments):
            environment = FAMILY.make(task, birdseye=0, **arguments)
            steps, total, info, rewards, terminated = drive(environment, seed, act)
            environment.close()
            return [info["stop_reason"], terminated, steps, rewards[-1], info["success"]]
        result["off_road"] = end([1.0, 0.5])
        result["blocked"] = end([0.0, -1.0])
        result["time_limit"] = end([0.0, -1.0], max_steps=7)
        result["shaped"] = end([1.0, 0.5], reward="shaped")
        from robo_sims.carla import environment as module

        class Blind:
            '''The driver, to whom no light and nobody else is shown.'''
            def __init__(self, environment):
                self.policy = environment.scripted_policy(0)
            def act(self, observation):
                seen = dict(observation)
                seen["next_light"] = np.array([100.0, 0, 0, 0], np.float32)
                seen["others"] = np.zeros_like(seen["others"])
                return self.policy.act(seen)

        def blind(task, reason, **arguments):
            environment = FAMILY.make(task, birdseye=0, **arguments)
            environment.scripted_policy, policy = None, Blind(environment)
            for seed in range(12):
                observation, _ = environment.reset(seed=seed)
                terminated = truncated = False
                while not terminated and not truncated:
                    observation, reward, terminated, truncated, info = environment.step(policy.act(observation))
                if info["stop_reason"] == reason:
                    break
            environment.close()
            return [info["stop_reason"], terminated, 0, reward, info["success"]]
        result["red_light"] = blind("Town-v0", "red_light")
        result["collision"] = blind("Ring-v0", "collision_vehicle", traffic=40)
    """)
    result["collision_vehicle"] = result.pop("collision")
    for reason in ("off_road", "blocked", "red_light", "collision_vehicle"):
        assert result[reason][:2] == [reason, True] and result[reason][4] is False
    assert result["blocked"][2] == 450 and result["time_limit"][:3] == ["time_limit", False, 7]
    assert [result[name][3] for name in ("off_road", "red_light", "collision_vehicle")] == [0.0, -1.0, -1.0]
    assert result["shaped"][3] < -9.0


@pytest.mark.slow
def test_hitting_a_crossing_walker_is_its_own_infraction(driven):
    result = driven("""
        def end(seeds, sees, **arguments):
            environment = FAMILY.make("Town-v0", birdseye=0, route_length=60.0, **arguments)
            policy, ends = environment.scripted_policy(0), []
            for seed in seeds:
                observation, _ = environment.reset(seed=seed)
                terminated = truncated = False
                crossed = 0.0
                while not terminated and not truncated:
                    if not sees:
                        observation = observation | {"others": np.zeros_like(observation["others"])}
                    observation, reward, terminated, truncated, info = environment.step(policy.act(observation))
                    people = environment.scene.others[environment.scene.others[:, 7] == 1]
                    crossed = max(crossed, *np.hypot(*people[:, 3:5].T), 0.0)
                ends.append([info["stop_reason"], reward, len(people), crossed, info["measures"]["collision_walker"]])
            environment.close()
            return ends
        crossing = {"scenario": "pedestrian-crossing"}
        result["sees"], result["blind"] = end(range(4), True, **crossing), end(range(4), False, **crossing)
        result["again"] = end(range(4), False, **crossing) == result["blind"]
        result["walkers"] = end(range(2), True, walkers=3)
        result["blocked"] = end([0], True, scenario="blocked-lane", max_steps=200)
    """)
    assert [reason for reason, *_ in result["sees"]] == ["goal"] * 4 and result["again"]
    assert all(people == 1 and pace > 1.5 for _, _, people, pace, _ in result["sees"])
    hits = [end for end in result["blind"] if end[0] == "collision_walker"]
    assert hits and all(reward == -1.0 and counted == 1.0 for _, reward, _, _, counted in hits)
    assert [people for _, _, people, _, _ in result["walkers"]] == [3, 3] and max(end[3] for end in result["walkers"]) > 0.5
    assert result["blocked"][0][0] == "time_limit"


@pytest.mark.slow
def test_driving_in_the_oncoming_lane_is_no_success(driven):
    result = driven("""
        for task, reward in (("Ring-v0", "carl"), ("Ring-v0", "shaped"), ("Town-v0", "carl")):
            environment = FAMILY.make(task, birdseye=0, reward=reward)
            policy = environment.scripted_policy(0)
            for seed in range(2):
                observation, _ = environment.reset(seed=seed)
                terminated, total = False, 0.0
                while not terminated:
                    observation["route"] = observation["route"] - np.array([0.0, 3.4], np.float32)
                    observation, paid, terminated, _, info = environment.step(policy.act(observation))
                    total += paid
                result[f"{task} {reward} {seed}"] = [info["stop_reason"], info["success"], total, info["measures"]]
            environment.close()
    """)
    for name, (reason, success, total, measures) in result.items():
        assert not success and reason != "goal", name
        assert measures["oncoming_share"] > 50 and measures["driving_score"] < 20, name
        assert total < (3.0 if "carl" in name else 0.0), name
    assert sum(reason == "oncoming_lane" for reason, *_ in result.values()) >= 4


def test_who_runs_into_a_car_that_stands_is_not_hit_by_it(driven):
    result = driven("""
        from robo_sims.carla.sensors import CollisionSensor
        hits = CollisionSensor.__new__(CollisionSensor)
        import queue
        hits._events, hits._excused = queue.SimpleQueue(), {}
        def told(*events, stood):
            for event in events:
                hits._events.put(event)
            return hits.newest(stood=stood)
        walker, car = "walker.pedestrian.0001", "vehicle.audi.a2"
        result["runs into it"] = told((10, 7, walker), stood=True)
        result["is pushed along"] = told((11, 7, walker), (12, 7, walker), stood=False)
        result["another"] = told((13, 7, walker), (13, 8, car), stood=False)
        result["is hit later"] = told((20, 7, walker), stood=False)
    """)
    expected = [None, None, "vehicle.audi.a2", "walker.pedestrian.0001"]
    assert list(result.values()) == expected


@pytest.mark.slow
def test_a_scenario_or_walkers_that_cannot_be_are_one_error(driven):
    result = driven("""
        from robo_rl.errors import RoboRLError
        from robo_sims.carla import session
        def said(**arguments):
            try:
                environment = FAMILY.make("Ring-v0", **arguments)
                environment.reset(seed=0)
            except RoboRLError as error:
                return str(error)
        result["name"] = said(scenario="pedestrian")
        session.OWN = "vehicle.tesla.model3", "an attribute that no server has"
        result["server"] = said(walkers=3, host="stand-in")
    """)
    assert "did you mean 'pedestrian-crossing'" in result["name"]
    assert "no walkers that cross by themselves" in result["server"]


@pytest.mark.slow
def test_fifty_episodes_leave_no_actor_on_named_server(driven):
    result = driven("""
        import carla
        from robo_sims.carla.local_server import StandIn
        with StandIn(map="ring") as server:
            environment = FAMILY.make("Town-v0", host=server.host, port=server.port, traffic=5, camera=32, birdseye=32)
            world = None
            def open_files():
                return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{server.process.pid}/fd"))
            for seed in range(50):
                observation, _ = environment.reset(seed=seed)
                environment.step(np.array([0.0, 1.0], np.float32))
                kinds = [actor.type_id for actor in environment.session.world.get_actors()]
                if seed in (5, 49):
                    result[str(seed)] = [sum(name.startswith(kind) for name in kinds) for kind in ("vehicle.", "sensor.")]
                    result[str(seed)] += open_files()
            environment.close()
            client = carla.Client(server.host, server.port, worker_threads=1)
            client.set_timeout(5.0)
            world = client.get_world()
            world.wait_for_tick()
            result["left"] = sorted({actor.type_id for actor in world.get_actors()})
            result["map"], result["synchronous"] = world.get_map().name, world.get_settings().synchronous_mode
            del world, client
    """)
    assert result["5"][:2] == [6, 2] and result["5"] == result["49"]
    assert result["left"] == ["spectator", "traffic.traffic_light", "traffic.yield"]
    assert result["map"] == "Carla/Maps/grid" and result["synchronous"] is False


@pytest.mark.slow
def test_dead_or_hung_server_cuts_episode_and_next_starts(driven):
    result = driven("""
        import signal
        environment = FAMILY.make("Ring-v0", host="stand-in", birdseye=32, patience=1.5)
        def threads():
            return len(os.listdir("/proc/self/task"))
        before = threads()
        def lose(send):
            environment.reset(seed=1)
            assert threads() > before
            environment.step(np.zeros(2, np.float32))
            process = environment.session._resources.server.process
            os.kill(process.pid, send)
            if send == signal.SIGKILL:
                process.wait()
            started = time.monotonic()
            observation, reward, terminated, truncated, info = environment.step(np.zeros(2, np.float32))
            taken = time.monotonic() - started
            assert set(observation) == set(environment.environment_spec.observation)
            if process.status is None:
                os.kill(process.pid, signal.SIGCONT)
            while threads() > before and time.monotonic() < started + 20:
                time.sleep(0.01)
            assert threads() == before, "the client is gone: it would hear the next server, and die of that"
            return [reward, terminated, truncated, info["stop_reason"], info["success"], taken]
        result["dies"], result["hangs"] = lose(signal.SIGKILL), lose(signal.SIGSTOP)
        first = environment.reset(seed=1)[0]["route"].tolist()
        result["again"] = first == environment.reset(seed=1)[0]["route"].tolist()
        result["steps"] = drive(environment, 1)[2]["stop_reason"]
        environment.close()
    """)
    assert result["dies"][:5] == result["hangs"][:5] == [0.0, False, True, "link_lost", False]
    assert result["dies"][5] < 1.0 and result["hangs"][5] < 4.0
    assert result["again"] and result["steps"] == "goal"


@pytest.mark.slow
def test_link_notices_at_once_that_its_own_server_dies_in_a_tick(driven):
    result = driven("""
        import signal, threading
        environment = FAMILY.make("Ring-v0", host="stand-in", birdseye=0, patience=20.0)
        def step(later):
            process = environment.session._resources.server.process
            os.kill(process.pid, signal.SIGSTOP)
            timer = threading.Timer(1.0, os.kill, [process.pid, later])
            timer.start()
            started = time.monotonic()
            info = environment.step(np.zeros(2, np.float32))[4]
            timer.join()
            return [info.get("stop_reason"), time.monotonic() - started]
        environment.reset(seed=1)
        frames = [environment.session.world.get_snapshot().frame]
        result["slow"] = step(signal.SIGCONT)
        frames.append(environment.session.world.get_snapshot().frame)
        environment.step(np.zeros(2, np.float32))
        frames.append(environment.session.world.get_snapshot().frame)
        result["frames"] = [frame - frames[0] for frame in frames]
        result["dead"] = step(signal.SIGKILL)
        environment.close()
    """)
    assert result["slow"][0] is None and result["frames"] == [0, 1, 2]
    assert result["dead"][0] == "link_lost" and result["dead"][1] < 10.0


def test_server_death_during_reset_is_recovered(driven):
    result = driven("""
        from robo_sims.carla.session import CarlaSession
        spawn, killed = CarlaSession.spawn, []
        def last(self, blueprint, *where):  # of the car, before it has its sensors
            actor = spawn(self, blueprint, *where)
            if not killed:
                killed.append(self._resources.server.process)
                killed[0].stop()
            return actor
        environment = FAMILY.make("Ring-v0", host="stand-in", birdseye=0, patience=1.5)
        environment.reset(seed=0)
        CarlaSession.spawn = last
        environment.reset(seed=1)
        result["ended"], result["end"] = killed[0].status, drive(environment, 1)[2]["stop_reason"]
        environment.close()
    """)
    assert result["ended"] == -9 and result["end"] == "goal"


@pytest.mark.slow
def test_reset_right_after_server_death_does_not_wait(driven):
    """Red before: 30.4 s, the patience and a start."""
    result = driven("""
        import signal
        environment = FAMILY.make("Ring-v0", host="stand-in", birdseye=0, patience=30.0)
        environment.reset(seed=0)
        os.kill(environment.session._resources.server.process.pid, signal.SIGKILL)
        started = time.monotonic()
        environment.reset(seed=1)
        result["seconds"] = time.monotonic() - started
        result["patience"] = environment.step(np.zeros(2, np.float32))[4].get("stop_reason")
        environment.close()
    """)
    assert result["seconds"] < 25.0 and result["patience"] is None


@pytest.mark.slow
def test_unclosed_environment_exits_cleanly_with_server(driven):
    result = driven("""
        environment = FAMILY.make("Ring-v0", host="stand-in", birdseye=32, camera=32, traffic=3)
        environment.reset(seed=0)
        environment.step(np.zeros(2, np.float32))
        result["server"] = environment.session._resources.server.process.pid
    """)
    import os

    with pytest.raises(ProcessLookupError):
        os.kill(result["server"], 0)


@pytest.mark.slow
def test_each_thing_that_is_missing_is_one_clear_error(driven):
    result = driven("""
        import socket, subprocess, threading
        from robo_rl.errors import RoboRLError
        from robo_sims.carla import session
        session.PAUSE = 0.0
        def said(**arguments):
            environment = FAMILY.make("Ring-v0", **arguments)
            try:
                environment.reset(seed=0)
            except RoboRLError as error:
                return f"{type(error).__name__}: {error}"
            finally:
                environment.close()
        free = socket.create_server(("127.0.0.1", 0))
        port = free.getsockname()[1]
        result["silent"] = said(host="127.0.0.1", port=port, patience=0.3)  # listens, and never answers
        free.close()
        result["nobody"] = said(host="127.0.0.1", port=port)
        result["map"], result["map of a server"] = said(map="moon"), said(map="moon", host="stand-in")
        program = "from carla_standin import layouts, server; layouts.VERSION = '0.9.15'; server.main()"
        options = '{"port": 0, "map": "ring"}'
        old = subprocess.Popen([sys.executable, "-c", program, options], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        result["version"] = said(host="127.0.0.1", port=json.loads(old.stdout.readline())["port"])
        old.kill()
        old.communicate()
    """)
    assert result["nobody"].startswith("ServerUnavailable: No CARLA server listens at 127.0.0.1:")
    assert (
        result["silent"].startswith("ServerUnavailable: The program that listens at 127.0.0.1:")
        and "does not answer" in result["silent"]
    )
    assert "another version" in result["version"] and "0.9.15" in result["version"] and "0.9.16" in result["version"]
    assert result["map"].startswith("InvalidSetting: Unknown map 'moon'") and "ring" in result["map"]
    assert "moon" in result["map of a server"] and result["map of a server"].startswith("ServerUnavailable")


@pytest.mark.slow
def test_without_the_wheel_everything_else_works(driven):
    result = driven("""
        from robo_rl.environments.make import environment_names
        from robo_rl.errors import MissingExtra
        result["listed"] = list(FAMILY.names())
        result["loaded"] = "carla" in sys.modules
        sys.modules["carla"] = None
        names = environment_names()
        result["minigrid"] = any(name.startswith("minigrid/") for name in names)
        try:
            FAMILY.make("Ring-v0")
        except MissingExtra as error:
            result["said"] = str(error)
    """)
    assert result["listed"][:3] == ["Ring-v0", "Town-v0", "Highway-v0"] and "RingTest-v0" in result["listed"]
    assert not result["loaded"] and result["minigrid"]
    assert "'carla', which is not installed" in result["said"] and 'pip install "robo-rl[carla]"' in result["said"]


CONFORMANCE = """
    import functools, warnings
    from gymnasium.utils.env_checker import check_env as gymnasium_check
    from stable_baselines3.common.env_checker import check_env as stable_baselines_check
    from robo_rl.conformance.environments import check_environment
    make = functools.partial(FAMILY.make, "{task}", traffic=4, route_length=40.0, max_steps=30, camera=32, birdseye=32)
    if {foreign}:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            gymnasium_check(make(), skip_render_check=True)
            stable_baselines_check(make(), warn=False)
    else:
        check_environment(make)
    result["kept"] = True
"""


@pytest.mark.slow
def test_every_rule_for_environments_is_kept(driven):
    result = driven("""
        from robo_rl.conformance.environments import ENVIRONMENT_CHECKS, closing_twice_is_harmless
        free, made = [], []
        def kept():  # an environment that is used again after close(): each server takes half a second to start
            if not free:
                made.append(FAMILY.make("Town-v0", traffic=4, route_length=40.0, max_steps=30, camera=32, birdseye=32))
                free.append(made[-1])
            environment = free.pop()
            environment.close = lambda: environment in free or free.append(environment)
            return environment
        for check in ENVIRONMENT_CHECKS:
            if check is not closing_twice_is_harmless:
                check(kept)
        closing_twice_is_harmless(lambda: FAMILY.make("Town-v0"))
        for environment in made:
            del environment.close
            environment.close()
        result["made"] = len(made)
    """)
    assert result["made"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "foreign"), [("Ring-v0", False), ("Highway-v0", False), ("Town-v0", True), ("Ring-v0", True), ("Highway-v0", True)]
)
def test_every_rule_is_kept_everywhere(driven, task, foreign):
    assert driven(CONFORMANCE.format(task=task, foreign=foreign))["kept"]


REAL = """
    from robo_sims.carla import session
    session.OWN = "vehicle.tesla.model3", "an attribute that no server has"  # as a real server, which begins no world anew
    environment = FAMILY.make("Town-v0", host="stand-in", traffic={traffic}, birdseye=0, camera=16)
    policy = environment.scripted_policy(0)
    result["kinds"], result["completion"], result["fastest"] = [], [], 0.0
    for seed in range(4):
        observation, _ = environment.reset(seed=seed)
        for _ in range({steps}):
            observation, _, terminated, truncated, info = environment.step(policy.act(observation))
            result["fastest"] = max([result["fastest"], *np.hypot(*environment.scene.others[:, 3:5].T).tolist()])
            if terminated or truncated:
                break
        kinds = [actor.type_id for actor in environment.session.world.get_actors()]
        result["kinds"].append([sum(name.startswith(kind) for name in kinds) for kind in ("vehicle.", "sensor.")])
        result["completion"].append(info["measures"]["route_completion"] / 100)
    environment.close()
"""


@pytest.mark.slow
def test_actors_are_destroyed_singly_without_world_reload(driven):
    result = driven(REAL.format(traffic=0, steps=60))
    assert result["kinds"] == [[1, 2]] * 4 and min(result["completion"]) > 0.05


@pytest.mark.slow
def test_client_traffic_manager_drives_if_server_does_not(driven):
    result = driven(REAL.format(traffic=5, steps=100))
    assert result["kinds"] == [[6, 2]] * 4 and result["fastest"] > 5.0
