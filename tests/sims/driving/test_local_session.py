"""The world in this process is the server's, to the bit: episodes through the client and without it are the same."""

import hashlib
import inspect

import numpy as np
import pytest

pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")
pytest.importorskip("msgpack")

from robo_rl.errors import InvalidSetting, ServerUnavailable
from robo_sims.carla.family import FAMILY
from robo_sims.carla.frames import ClientFrame
from robo_sims.carla.local_session import LocalSession
from robo_sims.carla.observations import FAR

CASES = {
    "traffic": {"task": "Town-v0", "traffic": 20},
    "walkers": {"task": "TownTest-v0", "traffic": 8, "walkers": 4, "camera": 32},
    "crossing": {"task": "Town-v0", "scenario": "pedestrian-crossing", "birdseye": 32},
    "blocked": {"task": "Ring-v0", "scenario": "blocked-lane", "traffic": 3},
    "highway": {"task": "Highway-v0", "traffic": 12},
}


def digest(task, steps, **arguments):
    """Hash of everything that two episodes give: one of the expert, one that drives straight on into whatever comes."""
    found = hashlib.sha256()
    environment = FAMILY.make(task, **{"birdseye": 0} | arguments)
    try:
        for seed, expert in ((3, True), (4, False)):
            policy = environment.scripted_policy(0)
            observation, _ = environment.reset(seed=seed)
            for _ in range(steps):
                action = policy.act(observation) if expert else np.array([0.0, 0.6], np.float32)
                observation, reward, terminated, truncated, info = environment.step(action)
                for name in sorted(observation):
                    found.update(observation[name].tobytes())
                found.update(environment.scene.others.tobytes() + np.float64(reward).tobytes())
                found.update(str(info.get("stop_reason")).encode())
                if terminated or truncated:
                    break
    finally:
        environment.close()
    return found.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_world_in_process_equals_client_to_the_bit(driven, name):
    case = {"steps": 250, **CASES[name]}
    program = f"import hashlib\n{inspect.getsource(digest)}\nresult['digest'] = digest(host='stand-in', **{case!r})"
    there = driven(program)
    assert digest(**case) == there["digest"]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["vectors", "sets"])
def test_a_blind_driver_sees_road_and_route_alone(layout):
    others = {"vectors": ("others",), "sets": ("cars", "lights")}[layout]
    seen = []
    for blind in (False, True):
        environment = FAMILY.make("Town-v0", traffic=20, layout=layout, blind=blind)
        observation, _ = environment.reset(seed=7)
        seen.append(observation)
        assert len(environment.scene.others) == 20, "who judges sees them"
        environment.close()
    for name, values in seen[0].items():
        kept = seen[1][name]
        if name in others:
            assert values.any() and not kept.any(), name
        elif name == "next_light":
            assert kept.tolist() == [FAR, 0.0, 0.0, 0.0] != values.tolist()
        elif name == "birdseye":
            assert values[..., 3].any() and not kept[..., 3:].any() and (values[..., :3] == kept[..., :3]).all()
        else:
            assert (values == kept).all(), name
    with pytest.raises(InvalidSetting, match="A camera sees"):
        FAMILY.make("Town-v0", blind=True, camera=32)


@pytest.fixture
def session():
    made = LocalSession(map="ring")
    made.open()
    yield made
    made.close()


def test_frames_are_rounded_as_a_client_rounds_them(session):
    session.begin()
    car = session.spawn(session.library.find("vehicle.tesla.model3"), session.spawn_points()[0])
    row = session.world.bodies.by_id[car.id].row
    frame = session.tick()
    session.world.bodies.motion[row, :2] = 0.1, 1 / 3
    exact = session.world.bodies.motion[row, :2].tolist()
    assert frame.motion(car.id)[:2] == tuple(float(np.float32(value)) for value in exact) != tuple(exact)
    places = frame.places([car.id, 10_000, car.id])
    assert np.isnan(places[1]).all() and places[0].tolist() == places[2].tolist() == list(frame.motion(car.id)[:5])
    assert frame.motion(10_000) is None and frame.places([]).shape == (0, 5)


def test_client_frame_says_who_is_gone():
    class Snapshot:
        frame = 7

        def find(self, number):
            return None

    frame = ClientFrame(Snapshot())
    assert frame.frame == 7 and frame.motion(1) is None and np.isnan(frame.places([1, 2])).all()


def test_occupied_place_has_no_room_and_begin_empties_it(session):
    blueprint, pose = session.library.find("vehicle.tesla.model3"), session.spawn_points()[0]
    session.begin()
    assert session.spawn(blueprint, pose) is not None and session.spawn(blueprint, pose) is None
    assert len(session.spawn_all([(blueprint, pose), (blueprint, session.spawn_points()[3])])) == 1
    session.begin()
    assert session.spawn(blueprint, pose) is not None


def test_blueprints_refuse_unknown_names(session):
    with pytest.raises(KeyError, match="moon"):
        session.library.find("moon")
    with pytest.raises(KeyError, match="wings"):
        session.library.find("vehicle.tesla.model3").set_attribute("wings", "2")


def test_closed_world_and_unknown_map_are_one_error():
    session = LocalSession(map="moon")
    with pytest.raises(ServerUnavailable, match="closed"):
        session.require()
    with pytest.raises(InvalidSetting, match="Unknown map 'moon'"):
        session.open()
