"""Grid worlds as arrays: the rules of MiniGrid one by one, views cell by cell, one-hot views by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from minigrid.core.world_object import Ball, Box, Door, Floor, Goal, Key, Lava, Wall

from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidSetting
from robo_sims.batched.environment import BatchedEnvironment
from robo_sims.grids.batch import MiniGridBatch
from robo_sims.grids.cells import ONE_HOT, cell_of, cells_of, look_of
from robo_sims.grids.simulation import MiniGridSimulation

FRONTS = {
    "nothing": lambda: None,
    "wall": Wall,
    "floor": Floor,
    "goal": Goal,
    "lava": Lava,
    "open door": lambda: Door("red", is_open=True),
    "closed door": lambda: Door("red"),
    "locked door": lambda: Door("red", is_locked=True),
    "key": lambda: Key("red"),
    "ball": lambda: Ball("blue"),
    "empty box": lambda: Box("green"),
    "box with a key": lambda: Box("green", Key("red")),
}
CARRIED = {
    "nothing": lambda: None,
    "the key": lambda: Key("red"),
    "another key": lambda: Key("blue"),
    "a box": lambda: Box("red", Ball("blue")),
}
CASES = [*itertools.product(FRONTS, CARRIED, range(7))]


def placed(simulation: MiniGridSimulation, front: str, carried: str) -> Any:
    """Returns MiniGrid's environment with a thing right in front of the agent."""
    simulation.reset(0)
    source = simulation.source
    source.agent_pos, source.agent_dir = (1, 1), 0
    source.grid.set(2, 1, FRONTS[front]())
    source.carrying = CARRIED[carried]()
    return source


def test_every_action_on_every_thing_does_what_minigrid_does() -> None:
    task = "MiniGrid-Empty-5x5-v0"
    single, batch = MiniGridSimulation(task, "one-hot"), MiniGridBatch(task, len(CASES), "one-hot")
    batch.begin(dict.fromkeys(range(len(CASES)), 0))
    for index, (front, carried, _) in enumerate(CASES):
        source = placed(single, front, carried)
        batch.cells[index] = batch.views.framed(cells_of(source)[None])[0]
        batch.places[index], batch.directions[index] = batch.views.index(1, 1), 0
        batch.carried[index] = cell_of(source.carrying)
    step = batch.step(np.array([action for *_, action in CASES]), {})
    for index, (front, carried, action) in enumerate(CASES):
        source, case = placed(single, front, carried), CASES[index]
        expected = single.step(np.array(action))
        assert (step.rewards[index], step.terminated[index]) == (expected.reward, expected.terminated), case
        assert (batch.views.inner(batch.cells[index][None])[0] == cells_of(source)).all(), case
        assert batch.carried[index] == cell_of(source.carrying), case
        observed = np.concatenate([part.ravel() for part in expected.observation.values()])
        assert (step.vectors[index] == observed).all(), case


@pytest.mark.parametrize("task", ["MultiRoom-N4-S5-v1", "KeyCorridorS3R3-v0", "FourRooms-v0", "ObstructedMaze-1Dlhb-v0"])
def test_views_hide_what_minigrid_hides(task: str) -> None:
    single, batch = MiniGridSimulation(f"MiniGrid-{task}"), MiniGridBatch(f"MiniGrid-{task}", 4, "codes")
    for seed in range(6):
        single.reset(seed)
        batch.begin(dict.fromkeys(range(4), seed))
        batch.directions[:] = range(4)
        for direction, vector in enumerate(batch.observe()):
            single.source.agent_dir = direction
            assert (vector[:-4].reshape(7, 7, 3) == single.source.gen_obs()["image"]).all(), (seed, direction)


def test_one_hot_channels_by_hand() -> None:
    #  unseen wall floor door key ball box goal lava | red green blue purple yellow grey | open closed locked
    rows = {
        (0, 0, 0): "100000000 000000 000",
        (1, 0, 0): "000000000 000000 000",
        (2, 5, 0): "010000000 000000 000",
        (4, 4, 2): "000100000 000010 001",
        (4, 0, 0): "000100000 100000 100",
        (5, 2, 0): "000010000 001000 000",
        (8, 1, 0): "000000010 000000 000",
    }
    for code, row in rows.items():
        assert "".join(str(int(bit)) for bit in ONE_HOT[look_of(*code)]) == row.replace(" ", ""), code


def test_tasks_with_rules_of_their_own_are_stepped_one_by_one() -> None:
    for task, kind in (("Unlock-v0", SequentialEnvironments), ("UnlockPickup-v0", BatchedEnvironment)):
        vector = make_vector_environment(f"minigrid/MiniGrid-{task}", 2, autoreset_mode=AutoresetMode.SAME_STEP)
        assert isinstance(vector, kind), task
        vector.close()


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(
        InvalidSetting, match=r"Unknown encoding of a grid\.\n  got:     'onehot'\n  allowed: \['codes', 'one-hot'\]"
    ):
        make_environment("minigrid/MiniGrid-Empty-5x5-v0", encoding="onehot")


def test_a_batch_is_drawn_for_people() -> None:
    vector = make_vector_environment("minigrid/MiniGrid-DoorKey-5x5-v0", 2, render_mode="rgb_array")
    single = make_environment("minigrid/MiniGrid-DoorKey-5x5-v0", render_mode="rgb_array")
    vector.reset(seed=3)
    single.reset(seed=4)
    pictures = vector.render()
    assert pictures is not None and (pictures[1] == single.render()).all()
    vector.close()
