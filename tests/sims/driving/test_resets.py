"""Reset after reset over one server: no actor is left behind, and no file open. Fifty in the fast suite, a thousand as slow."""

import pytest

PROGRAM = """
from robo_sims.carla.local_server import StandIn
with StandIn(map="ring") as server:
    environment = FAMILY.make("Ring-v0", host=server.host, port=server.port, traffic=5, birdseye=0)
    def left():
        actors = [actor.type_id for actor in environment.session.world.get_actors()]
        files = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{server.process.pid}/fd"))
        return sorted(name.split(".")[0] for name in actors), files
    counts = []
    for seed in range(RESETS):
        environment.reset(seed=seed)
        environment.step(np.array([0.0, 1.0], np.float32))
        if seed % max(RESETS // 20, 1) == 0 and seed >= 5:
            counts.append(left())
    result["counts"] = counts
    environment.close()
    import carla
    client = carla.Client(server.host, server.port, worker_threads=1)
    client.set_timeout(5.0)
    world = client.get_world()
    world.wait_for_tick()
    result["left"] = sorted({actor.type_id for actor in world.get_actors()})
    result["said"] = server.said()
    del world, client
"""


@pytest.mark.slow
@pytest.mark.parametrize("resets", [50, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])])
def test_resets_leave_no_actor_behind(driven, resets):
    result = driven(f"RESETS = {resets}\n{PROGRAM}", limit=60 + resets)
    first, *others = result["counts"]
    assert len(others) > 10 and all(count == first for count in others)
    assert first[0].count("vehicle") == 6 and first[0].count("spectator") == 1
    assert result["left"] == ["spectator"] and "failed" not in result["said"]
