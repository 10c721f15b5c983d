"""The agent file that the CARLA leaderboard loads, and the driver behind it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")
pytest.importorskip("msgpack")

import carla

import robo_rl
from robo_app.robots.leaderboard_agent import AGENT, driver_of, write_agent
from robo_rl.errors import InvalidSetting
from robo_sims.carla.family import FAMILY
from robo_sims.carla.local_session import LocalSession
from robo_sims.carla.route_driver import RouteDriver, route_along

PROGRAM = Path(__file__).with_name("leaderboard_program.py")


@pytest.mark.slow
def test_agent_file_drives_a_route_for_an_evaluator(driven):
    text = AGENT.format(run="RUN", step=None, file="agent.py")
    result = driven(f"""
        import types, carla
        program = types.ModuleType("program")
        exec({PROGRAM.read_text()!r}, program.__dict__)
        program.install()
        from robo_app.robots import leaderboard_agent
        from robo_sims.carla.local_server import StandIn
        from robo_sims.carla.route_driver import RouteDriver
        environment = FAMILY.make("Town-v0", birdseye=0)
        asked = []
        def driver_of(run, step):
            asked.append([run, step])
            return RouteDriver(environment.scripted_policy(0), environment)
        leaderboard_agent.driver_of = driver_of
        agent = types.ModuleType("agent")
        exec({text!r}, agent.__dict__)
        with StandIn(map="grid", traffic=8, navigation=False) as server:
            result["drive"] = program.evaluate(carla, server, agent, 150, 120.0)
        result["asked"] = asked
    """)
    left, aside, hits, seconds = result["drive"]
    assert result["asked"] == [["RUN", None]]
    assert left < 3.0 and aside < 3.0 and hits == [] and 10 < seconds < 100


class Policy:
    def __init__(self):
        self.seen = []

    def act(self, observation, *, deterministic):
        self.seen.append(observation)
        return np.array([0.25, -0.5], np.float32)


class Place:
    """What of a client's world the driver reads; another car is there for the first two frames."""

    def __init__(self, session, car, other):
        self.session, self.car, self.other, self.frames = session, car, other, 0

    def get_map(self):
        return self.session.map()

    def get_actors(self):
        here = [self.car, self.other][: 2 if self.frames < 3 else 1]
        return SimpleNamespace(filter=lambda kind: [actor for actor in here if actor.type_id.startswith(kind.rstrip("*"))])

    def get_snapshot(self):
        frame = self.session.tick()
        self.frames += 1

        def find(number):
            x, y, yaw, vx, vy, ax, ay, turning = frame.motion(number)
            pose = carla.Transform(carla.Location(x, y), carla.Rotation(yaw=yaw))
            values = carla.Vector3D(vx, vy), carla.Vector3D(ax, ay), carla.Vector3D(z=turning)
            velocity, acceleration, angular = (lambda value=value: value for value in values)
            get = {"get_velocity": velocity, "get_acceleration": acceleration, "get_angular_velocity": angular}
            return SimpleNamespace(get_transform=lambda: pose, **get)

        return SimpleNamespace(frame=frame.frame, find=find)


@pytest.fixture
def place():
    session = LocalSession(map="ring")
    session.open()
    session.begin()
    poses = session.spawn_points()
    blueprint = session.library.find("vehicle.tesla.model3")
    made = Place(session, session.spawn(blueprint, poses[0]), session.spawn(blueprint, poses[1]))
    yield made
    session.close()


def plan_of(place, length=60):
    waypoint, plan = place.get_map().get_waypoint(place.car.get_transform().location), []
    for _ in range(length):
        plan.append(waypoint.transform)
        waypoint = waypoint.next(1.0)[0]
    return plan


def test_driver_decides_ten_times_a_second_and_keeps_controls(place):
    policy = Policy()
    driver = RouteDriver(policy, FAMILY.make("Town-v0", birdseye=0))
    driver.begin(place, place.car, plan_of(place))
    controls = [driver.control(place, step * 0.05, {}) for step in range(6)]
    assert len(policy.seen) == 3, "0.0, 0.1 and 0.2 s"
    assert all((one.throttle, one.steer, one.brake) == (0.0, 0.25, 0.5) for one in controls)
    assert [seen["others"][:, 0].sum() for seen in policy.seen] == [1, 1, 0], "the other car has left"
    assert policy.seen[0]["controls"].tolist() == [0.0, 0.0] and policy.seen[1]["controls"].tolist() == [0.25, -0.5]
    ahead = policy.seen[0]["route"]
    assert np.allclose(np.hypot(*ahead[0]), 2.0, atol=0.6) and (ahead[:4, 0] > 0).all()


def test_pictures_of_the_program_are_the_front_camera(place):
    policy = Policy()
    driver = RouteDriver(policy, FAMILY.make("Town-v0", birdseye=0, camera=16))
    (camera,) = driver.sensors()
    assert camera["type"] == "sensor.camera.rgb" and camera["width"] == 16 and camera["id"] == "front"
    driver.begin(place, place.car, plan_of(place))
    picture = np.arange(16 * 16 * 4, dtype=np.uint8).reshape(16, 16, 4)
    driver.control(place, 0.0, {"front": (1, picture)})
    assert (policy.seen[0]["camera_front"] == picture[:, :, 2::-1]).all()


def test_route_without_length_and_wrapped_environment_are_errors(place):
    with pytest.raises(InvalidSetting, match="too short"):
        route_along(place.get_map(), plan_of(place, 5))
    with pytest.raises(InvalidSetting, match="too short"):
        route_along(place.get_map(), [])
    doubled = [pose for pose in plan_of(place) for _ in range(2)]
    assert route_along(place.get_map(), doubled).length == pytest.approx(59, abs=1)
    import gymnasium

    with pytest.raises(InvalidSetting, match="drives no car by itself"):
        RouteDriver(Policy(), gymnasium.wrappers.TimeLimit(FAMILY.make("Town-v0", birdseye=0), 5))


def test_agent_file_is_written_for_runs_that_drive_alone(tmp_path):
    run = SimpleNamespace(path=tmp_path / "my run", recipe={"environment": {"name": "carla/Town-v0"}}, policy=lambda step: None)
    write_agent(run, tmp_path / "agent.py", 7)
    text = (tmp_path / "agent.py").read_text()
    compile(text, "agent.py", "exec")
    assert repr(str(tmp_path / "my run")) in text and "STEP = 7" in text and "--agent agent.py" in text
    run.recipe = {"environment": {"name": "robo/ArmPick-v0"}}
    with pytest.raises(InvalidSetting, match="drives no car"):
        write_agent(run, tmp_path / "other.py")
    assert not (tmp_path / "other.py").exists()


def test_run_of_drive_town_drives_without_its_labels(monkeypatch):
    arguments = {"birdseye": 0, "layout": "sets"}
    recipe = {"name": "carla/Town-v0", "arguments": arguments, "wrappers": [{"name": "labelled"}]}
    run = SimpleNamespace(recipe={"environment": recipe}, policy=lambda step: Policy())
    monkeypatch.setattr(robo_rl, "open_run", lambda path: run)
    assert "cars" in driver_of("run").environment.observation_space.spaces
