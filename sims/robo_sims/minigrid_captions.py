"""Captions of MiniGrid steps: an event, and the objects that the agent carries, faces and sees (entry point `minigrid`).

    You pick up a yellow key. You carry a yellow key. Ahead: nothing. In view: a locked yellow door.

A caption is computed from the action and the agent's observations before and after the step, without map, reward or success.
Equal steps have equal captions, so that captions can be counted and looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, optional
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array

with optional("MiniGrid", "minigrid", "minigrid"):
    from minigrid.core.actions import Actions
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, OBJECT_TO_IDX, STATE_TO_IDX

    from robo_sims.grids.cells import ONE_HOT, SEEN_KINDS, look_of

COLOURS, STATES = len(IDX_TO_COLOR), len(STATE_TO_IDX)
PLACE_VALUES = (COLOURS * STATES, STATES, 1)
WEIGHTS = np.array(
    [OBJECT_TO_IDX[name] * PLACE_VALUES[0] for name in SEEN_KINDS]
    + [number * PLACE_VALUES[1] for number in range(COLOURS)]
    + [number * PLACE_VALUES[2] for number in range(STATES)],
    np.float32,
)
"""Summand of each channel of a one-hot cell (C,), whose sum is the cell's number; 0 for empty and unseen cells."""
BY_LOOK = (ONE_HOT @ WEIGHTS).astype(np.uint8)
"""Table (look): number of a cell for the encoding "codes", the same as for "one-hot"."""
KINDS = len(IDX_TO_OBJECT) * COLOURS * STATES
DESCRIBED = ("door", "key", "ball", "box", "goal", "lava")
"""Kinds of objects in view that a caption mentions."""
UNCOLOURED = {"wall": "a wall", "goal": "a goal", "lava": "lava"}
PLACES = ("empty", "floor", "unseen")
STATE_NAMES = {number: name for name, number in STATE_TO_IDX.items()}
MOST_KEPT = 100_000  # size of the caption cache


class MiniGridCaptioner:
    """Captioner for all MiniGrid and BabyAI tasks; implements `robo_rl.rewards.step_rewards.captions.Captioner`."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def require(self, spec: EnvironmentSpec) -> None:
        """Raise InvalidSetting unless the environment has discrete actions and observes a square `grid`."""
        shape = spec.observation["grid"].shape if "grid" in spec.observation else None
        if shape is None or len(shape) != 3 or shape[0] != shape[1] or spec.action.mode != "discrete":
            raise InvalidSetting(
                f"The captioner minigrid cannot describe {spec.name}.",
                got=f"observations {', '.join(spec.observation)}",
                allowed="an environment of the family minigrid, which observes `grid`",
                fix="choose a minigrid/... environment, or another captioner",
            )

    def look(self, observations: Mapping[str, Array]) -> Array:
        """Return one uint8 number for each cell in view, (N, V, V), which encodes its object, colour and state together.

        observations: (N, ...) by name, with the entry `grid` (N, V, V, C) of a view of V x V cells in either encoding. The
        number is (object * COLOURS + colour) * STATES + state, with MiniGrid's numbers. Raises InvalidSetting without `grid`.
        """
        if "grid" not in observations:  # recorded episodes have no specification for `require`
            raise InvalidSetting(
                "The captioner minigrid cannot describe these steps.",
                got=f"observations {', '.join(observations)}",
                allowed="episodes of the family minigrid, which observe `grid`",
            )
        return _kinds(observations["grid"])

    def captions(self, before: Array, actions: Array, after: Array) -> list[str]:
        """Return the captions of K steps.

        before, after: cells in view before and after each step (K, V, V), as `look` returns them. actions: (K,).
        """
        now, size = after, after.shape[1]
        hands, faced = (size // 2, size - 1), (size // 2, size - 2)
        held, ahead = (before[:, *place] for place in (hands, faced))
        is_seen = np.zeros((len(now), KINDS), np.bool_)
        is_seen[np.arange(len(now))[:, None], now.reshape(len(now), -1)] = True
        # These bytes determine the caption: a look-up costs a tenth of writing it.
        facts = [held, ahead, now[:, *hands], now[:, *faced], np.asarray(actions).reshape(-1)]
        columns = np.stack(facts, 1).astype(np.uint8)
        keys = np.concatenate([columns, np.packbits(is_seen, axis=1)], axis=1)
        pairs = zip(keys, is_seen, strict=True)
        return [self._known.get(key := row.tobytes()) or self._write(key, row, seen) for row, seen in pairs]

    def _write(self, key: bytes, row: npt.NDArray[np.uint8], is_seen: npt.NDArray[np.bool_]) -> str:
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        caption = _sentences(*row[:5].tolist(), seen=np.flatnonzero(is_seen).tolist())
        self._known[key] = caption
        return caption


def _kinds(grids: Array) -> npt.NDArray[np.uint8]:
    """Return the number (...) of each cell for channels (..., C) in either encoding."""
    if grids.shape[-1] == ONE_HOT.shape[1]:
        return (grids @ WEIGHTS).astype(np.uint8)
    cells = grids.astype(np.int32)
    return np.asarray(BY_LOOK[look_of(cells[..., 0], cells[..., 1], cells[..., 2])])


def _sentences(held: int, faced: int, holds: int, faces: int, action: int, *, seen: Sequence[int]) -> str:
    """Return the caption of a step.

    held, faced: numbers of the carried object and of the cell ahead before the step; holds, faces: the same after it. seen:
    numbers of all cells in view after it.
    """
    parts = _events(held, faced, holds, faces, action)
    if _object(holds) not in PLACES:
        parts.append(f"You carry {_name(holds)}.")
    parts.append("Ahead: nothing." if _object(faces) in PLACES else f"Ahead: {_name(faces)}.")
    others = [_name(kind) for kind in seen if _object(kind) in DESCRIBED and kind not in (holds, faces)]
    if others:
        parts.append(f"In view: {', '.join(others)}.")
    return " ".join(parts)


def _events(held: int, faced: int, holds: int, faces: int, action: int) -> list[str]:
    """Return the event of a step in a list of at most one sentence."""
    had, has, object_ = _object(held) not in PLACES, _object(holds) not in PLACES, _object(faced)
    if has and not had:
        return [f"You pick up {_name(holds)}."]
    if had and not has:
        return [f"You drop {_name(held)}."]
    if action == Actions.forward and object_ in ("goal", "lava"):
        return [f"You reach {_name(faced)}." if object_ == "goal" else "You step into lava."]
    if action == Actions.forward and object_ == "door" and _state(faced) == "open":
        return [f"You walk into {_name(faced)}."]
    if action == Actions.toggle and object_ in ("door", "box") and faces != faced:
        return [f"You {_turn(faced, faces)} {_name(faced, with_state=False)}."]
    return []


def _turn(faced: int, faces: int) -> str:
    if _object(faced) == "door" and _state(faces) == "closed":
        return "close"
    return "unlock and open" if _object(faced) == "door" and _state(faced) == "locked" else "open"


def _object(kind: int) -> str:
    name: str = IDX_TO_OBJECT[kind // (COLOURS * STATES)]
    return name


def _state(kind: int) -> str:
    return STATE_NAMES[kind % STATES]


def _name(kind: int, *, with_state: bool = True) -> str:
    """Return an object in words with its article, such as "an open red door"."""
    object_ = _object(kind)
    if object_ in UNCOLOURED:
        return UNCOLOURED[object_]
    colour = IDX_TO_COLOR[kind // STATES % COLOURS]
    words = [_state(kind), colour, object_] if object_ == "door" and with_state else [colour, object_]
    article = "an" if words[0][0] in "aeiou" else "a"
    return " ".join([article, *words])
