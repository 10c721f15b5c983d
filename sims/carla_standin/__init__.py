"""A light stand-in for the CARLA 0.9.16 server, for the unmodified `carla` client from PyPI.

Start one in a test and use it like any CARLA server:

    from robo_sims.carla.local_server import StandIn

    with StandIn(map="grid") as server:             # a new process on a free pair of ports; ready when this returns
        client = carla.Client(server.host, server.port)
        client.set_timeout(5.0)
        world = client.get_world()

Rules: if a test may break the client, run it in a subprocess with a time limit (a broken map ends the client's process with a
segmentation fault); use `synchronous_mode` with `fixed_delta_seconds`; for traffic, use the blueprint attribute
`driver=traffic` (absent on a real server), not the client's Traffic Manager, which may hang at high tick rates.
Page: docs/driving/carla.md.
"""
