"""A Traffic Manager in a client: answers keep their distance, and what a script that makes traffic does comes to its end."""

import itertools
import threading
import time

import pytest

pytest.importorskip("msgpack")

from carla_standin.deferral import SETTLING, Deferrals
from carla_standin.pacing import APART, Pacing
from robo_sims.carla.local_server import StandIn
from tests.sims.standin.test_bad_input import Raw

SYNCHRONOUS = [True, False, [True, 0.05], True, 0.01, 10, 0.0, True, 3000.0, 2000.0, True]
ORDERS = ["tick_cue get_episode_settings", "get_episode_settings tick_cue", "tick_cue apply_batch"]


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 10.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_pacing_keeps_answers_apart_that_wake_two_threads():
    clock, managers = Clock(), {8000: None}
    pacing = Pacing(managers, clock.sleep, lambda: clock.now)
    answered = []
    for kind in ("settings", "tick", "settings", "batch", "batch", "tick"):
        pacing.space(kind)
        answered.append(clock.now - 10.0)
    steps = [1e3 * (after - before) for before, after in itertools.pairwise(answered)]
    assert steps == pytest.approx([1e3 * APART, 1e3 * APART, 0, 0, 1e3 * APART])
    managers.clear()
    for kind in ("tick", "settings", "batch"):
        pacing.space(kind)
    assert clock.now - 10.0 == answered[-1]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.real_time
def test_server_paces_answers_while_a_traffic_manager_runs(order):
    def took(raw: Raw) -> float:
        began = time.perf_counter()  # before the first answer, so that a slow client cannot hide a pause
        for name in order.split():
            raw.call(name, *[[]] * (name == "apply_batch"))
        return time.perf_counter() - began

    with StandIn() as server, Raw(server.port) as raw:
        raw.call("set_episode_settings", SYNCHRONOUS)
        assert min(took(raw) for _ in range(50)) < 0.9 * APART
        with Raw(server.port) as manager:
            assert manager.call("add_traffic_manager_running", ["127.0.0.1", 8000]) == [None, [[1, True]]]
            assert min(took(raw) for _ in range(20)) > 0.99 * APART
        end = time.monotonic() + 10.0  # its client is gone, but the server may read this connection first
        while raw.call("is_traffic_manager_running", 8000) != [None, [[1, False]]]:
            assert time.monotonic() < end
        assert min(took(raw) for _ in range(50)) < 0.9 * APART


@pytest.mark.slow
def test_traffic_manager_accepts_missing_actor():
    with StandIn() as server, Raw(server.port) as raw:
        made = raw.call("spawn_actor", [0, "vehicle.audi.a2", []], [[0.0, 0.0, 0.3], [0.0, 0.0, 0.0]])[1][0][1]
        raw.call("destroy_actor", made[0])
        empty = [[0.0] * 3, [0.0] * 3, [0.0] * 3, made[0]]
        assert raw.call("get_actor_bounding_box", made[0]) == [None, [[1, empty]]]
        assert raw.call("set_actor_simulate_physics", made[0], True) == [None, [[False]]]


TRAFFIC = """
import os, random, sys, time
import carla
client = carla.Client("127.0.0.1", int(sys.argv[1]))
client.set_timeout(20.0)
world = client.get_world()
manager = client.get_trafficmanager(20000 + int(sys.argv[1]) % 10000)
manager.set_global_distance_to_leading_vehicle(2.5)
manager.set_synchronous_mode(True)
settings = world.get_settings()
settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
world.apply_settings(settings)
command, generation = carla.command, lambda blueprint: int(blueprint.get_attribute("generation"))
library = world.get_blueprint_library()
cars = sorted(library.filter("vehicle.*"), key=lambda blueprint: blueprint.id)
walkers = [blueprint for blueprint in library.filter("walker.pedestrian.*") if generation(blueprint) == 2]
assert walkers and {generation(blueprint) for blueprint in cars} == {1, 2}
chance = random.Random(3)
batch = []
for point in world.get_map().get_spawn_points()[:30]:
    blueprint = chance.choice(cars)
    blueprint.set_attribute("color", chance.choice(blueprint.get_attribute("color").recommended_values))
    driven = command.SetAutopilot(command.FutureActor, True, manager.get_port())
    batch.append(command.SpawnActor(blueprint, point).then(driven))
made = [answer.actor_id for answer in client.apply_batch_sync(batch, True) if not answer.error]
assert len(made) == 30
client.apply_batch_sync([], True)
client.apply_batch_sync([], True)
manager.global_percentage_speed_difference(30.0)
for _ in range(300):
    world.tick()
result = {"moved": sum(actor.get_velocity().length() > 1.0 for actor in world.get_actors(made))}
settings.synchronous_mode, settings.fixed_delta_seconds = False, None
world.apply_settings(settings)
client.apply_batch([command.DestroyActor(number) for number in made])
time.sleep(0.5)
import json
"""


@pytest.mark.slow
@pytest.mark.parametrize("repetition", range(3))
def test_a_script_that_makes_traffic_ends(client, repetition):
    result = client("", opening=TRAFFIC, limit=90.0, map="grid")
    assert result["moved"] >= 5


def test_deferred_functions_keep_their_order():
    clock, called = Clock(), []
    waiting = Deferrals(lambda: clock.now)
    assert waiting.until_due() is None
    waiting.add(0.2, lambda: called.append("late"))
    waiting.add(0.1, lambda: called.append("early"))
    assert waiting.until_due() == pytest.approx(0.1)
    waiting.call_due()
    clock.sleep(0.15)
    waiting.call_due()
    assert called == ["early"]
    clock.sleep(0.15)
    waiting.call_due()
    assert called == ["early", "late"] and waiting.until_due() is None


@pytest.mark.slow
def test_load_is_answered_late_beside_a_traffic_manager():
    """Red before: answered at once, which ended clients of a Traffic Manager by a segmentation fault."""
    with StandIn() as server, Raw(server.port) as raw, Raw(server.port) as manager:
        manager.call("add_traffic_manager_running", ["127.0.0.1", 8000])
        answers: list[str] = []
        began = time.perf_counter()

        def load() -> None:
            assert raw.call("load_new_episode", "ring", True, 0)[0] is None
            answers.append("load")

        loading = threading.Thread(target=load)
        loading.start()
        while manager.call("get_episode_info")[1][0][1][0] < 2:
            assert time.perf_counter() - began < 10.0
        served = 0
        while not answers:
            manager.call("version")
            served += 1
        loading.join()
        assert time.perf_counter() - began > 0.99 * SETTLING and served >= 1
