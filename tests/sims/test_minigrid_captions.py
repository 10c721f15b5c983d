"""Steps of MiniGrid in words: what the arrays show and nothing more, equal for equal steps, in both encodings."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from robo_rl.entry_points import known, load
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.errors import InvalidSetting
from robo_sims.grids.cells import ONE_HOT, look_of
from robo_sims.minigrid_captions import MiniGridCaptioner

EMPTY, WALL = (1, 0, 0), (2, 5, 0)
KEY, GOAL, LAVA, BALL, BOX = (5, 4, 0), (8, 1, 0), (9, 0, 0), (6, 0, 0), (7, 3, 0)
OPEN, CLOSED, LOCKED = (4, 4, 0), (4, 4, 1), (4, 4, 2)
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE = range(6)


def view(*, held=EMPTY, ahead=EMPTY, far=()):
    """A view of 7 x 7 cells; the agent looks up from the middle of the last row."""
    grid = np.zeros((7, 7, 3), np.uint8)
    grid[3, 6], grid[3, 5] = held, ahead
    for number, cell in enumerate(far):
        grid[number, 0] = cell
    return grid


def caption(before, action, after):
    describer = MiniGridCaptioner()
    looks = [describer.look({"grid": grid[None]}) for grid in (before, after)]
    return describer.captions(looks[0], np.array([action]), looks[1])[0]


STEPS = {
    "You pick up a yellow key. You carry a yellow key. Ahead: nothing. In view: a locked yellow door.": (
        view(ahead=KEY), PICK_UP, view(held=KEY, far=[LOCKED]),
    ),
    "You drop a yellow key. Ahead: a yellow key.": (view(held=KEY), DROP, view(ahead=KEY)),
    "You unlock and open a yellow door. You carry a yellow key. Ahead: an open yellow door.": (
        view(held=KEY, ahead=LOCKED), TOGGLE, view(held=KEY, ahead=OPEN),
    ),
    "You open a yellow door. Ahead: an open yellow door. In view: a goal.": (
        view(ahead=CLOSED), TOGGLE, view(ahead=OPEN, far=[GOAL, WALL]),
    ),
    "You close a yellow door. Ahead: a closed yellow door.": (view(ahead=OPEN), TOGGLE, view(ahead=CLOSED)),
    "Ahead: a locked yellow door.": (view(ahead=LOCKED), TOGGLE, view(ahead=LOCKED)),  # without the key
    "You open a purple box. Ahead: a red ball.": (view(ahead=BOX), TOGGLE, view(ahead=BALL)),
    "You walk into an open yellow door. Ahead: nothing.": (view(ahead=OPEN), FORWARD, view()),
    "You reach a goal. Ahead: a wall.": (view(ahead=GOAL), FORWARD, view(ahead=WALL)),
    "You step into lava. Ahead: nothing.": (view(ahead=LAVA), FORWARD, view()),
    "Ahead: a goal. In view: lava.": (view(ahead=LAVA), LEFT, view(ahead=GOAL, far=[LAVA, LAVA])),
    "Ahead: a closed yellow door.": (view(ahead=OPEN), RIGHT, view(ahead=CLOSED)),  # another one, after turning
}  # fmt: skip


@pytest.mark.parametrize(("told", "step"), STEPS.items(), ids=STEPS)
def test_a_step_is_told_in_words(told, step):
    before, action, after = step
    assert caption(before, action, after) == told
    one_hot = [ONE_HOT[look_of(*np.moveaxis(grid.astype(np.int32), -1, 0))] for grid in (before, after)]
    assert caption(one_hot[0], action, one_hot[1]) == told


def test_description_is_independent_of_batch_position():
    steps = [*STEPS.values()] * 2
    before, actions, after = (np.stack([np.asarray(step[part]) for step in steps]) for part in range(3))
    describer = MiniGridCaptioner()
    expected = [*STEPS] * 2
    before, after = (describer.look({"grid": grids}) for grids in (before, after))
    assert list(describer.captions(before, actions, after)) == expected
    order = np.random.default_rng(0).permutation(len(steps))
    again = describer.captions(before[order], actions[order], after[order])
    assert list(again) == [expected[number] for number in order]


@pytest.mark.parametrize("task", ["DoorKey-5x5-v0", "KeyCorridorS3R1-v0"])
def test_task_has_dozens_of_captions_equal_in_both_encodings(task):
    assert "minigrid" in known("captioners")
    found = {}
    for encoding in ("codes", "one-hot"):
        same_step = AutoresetMode.SAME_STEP
        environments = make_vector_environment(f"minigrid/MiniGrid-{task}", 32, autoreset_mode=same_step, encoding=encoding)
        describer, random = load("captioners", "minigrid")(), np.random.default_rng(0)
        describer.require(environments.environment_spec)
        seen, _ = environments.reset(seed=0)
        found[encoding] = []
        for _ in range(60):
            actions, before = random.integers(0, 6, 32), seen
            seen = environments.step(actions)[0]
            found[encoding] += describer.captions(describer.look(before), actions, describer.look(seen))
    assert found["codes"] == found["one-hot"]
    assert 30 <= len(set(found["codes"])) <= 1000


def test_an_environment_without_a_grid_is_refused():
    environment = make_environment("gymnasium/InvertedPendulum-v5")
    with pytest.raises(InvalidSetting, match="minigrid cannot describe gymnasium/InvertedPendulum-v5") as caught:
        MiniGridCaptioner().require(environment.get_wrapper_attr("environment_spec"))
    assert "allowed: an environment of the family minigrid" in str(caught.value)
    with pytest.raises(InvalidSetting, match=r"cannot describe these steps(.|\n)*got: +observations position"):
        MiniGridCaptioner().look({"position": np.zeros((1, 2))})  # of a recorded episode
    environment.close()
