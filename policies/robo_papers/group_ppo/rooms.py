"""MiniGrid's FourRooms from a clone: PPO on the return, or on sets of episodes that visit different rooms.

python -m robo_papers.group_ppo.rooms --seeds 3 --steps 100000 --episodes 4 --out rooms

One JSON file for each seed and objective; those that are there are not computed again.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from minigrid.core.constants import DIR_TO_VEC
from typing_extensions import override

from robo_bench.trainings import Silent
from robo_papers.group_ppo.learner import GroupPPOConfig
from robo_rl.environments.levels import level_seed
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.statistics import pass_at_k
from robo_rl.rollout.episode import rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.system.durable_files import write_durably
from robo_rl.types import Array, Episode

LAYOUTS, SIZE, LONGEST = 20, 19, 100
LEFT, RIGHT, FORWARD = range(3)
ATTEMPTS, MOVED = 20, 10
"""Number of evaluation episodes of each layout: from its own start, and from starts in other rooms."""
SETTINGS: dict[str, Any] = {
    "network": {"hidden": (128, 128), "normalization_rows": 0},
    "advantages": {"signature": ("room",), "resolution": 1.0, "set_size": 4, "sets": 8, "window": 5},
    "cloning": {"updates": 3000},
    **{"lr": 2.5e-4, "epochs": 2, "discount": 0.99, "clip_high": 0.2, "episodes": 36, "group": 9},
}
KINDS: dict[str, dict[str, Any]] = {
    "return": {"advantages": {"kind": "critic"}},
    "sets": {"advantages": {"kind": "set"}},
    "sets-reference": {"advantages": {"kind": "set"}, "reference_weight": 0.05},
    "sets-permuted": {"advantages": {"kind": "set"}, "shuffles": True},
}
"""Name of a method -> settings: PPO, polychromic sets, these with a penalty of the distance to the clone, and a control with
advantages permuted within each episode."""


class FourRooms(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper of MiniGrid's FourRooms on some layouts; the agent observes its view, the room only tells episodes apart."""

    def __init__(self, *, moved: bool = False) -> None:
        """moved: episodes begin in another room than the layout's own start."""
        super().__init__(make_environment("minigrid/MiniGrid-FourRooms-v0", encoding="one-hot"))
        spec = specification(self.env)
        room = ArraySpec("room", (4,), low=0.0, high=1.0, role="privileged", meaning="one-hot")
        self.environment_spec = EnvironmentSpec(
            "bench/FourRooms", ObservationSpec((*spec.observation.arrays, room)), spec.action, max_steps=LONGEST
        )
        self.observation_space, self._moved = self.environment_spec.observation.space, moved

    @property
    def grid(self) -> Any:
        """MiniGrid's own environment inside the wrappers."""
        return self.env.get_wrapper_attr("simulation").source

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        number = 0 if seed is None else seed
        observation, info = self.env.reset(seed=level_seed("train", number % LAYOUTS), options=options)
        if self._moved:
            observation = self._put_elsewhere(np.random.default_rng(number))
        return self._seen(observation), info

    @override
    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self.env.step(action)
        reward = 1.0 - 0.5 * self.grid.step_count / LONGEST if info.get("success") else 0.0
        return self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: Observation) -> Observation:
        return {**observation, "room": np.eye(4, dtype=np.float32)[room_of(self.grid.agent_pos)]}

    def _put_elsewhere(self, random: np.random.Generator) -> Observation:
        grid = self.grid
        own = room_of(grid.agent_pos)
        free = [(x, y) for x in range(SIZE) for y in range(SIZE) if grid.grid.get(x, y) is None and room_of((x, y)) != own]
        grid.agent_pos, grid.agent_dir = free[random.integers(len(free))], int(random.integers(4))
        found: Observation = self.env.get_wrapper_attr("simulation")._flat(grid.gen_obs())
        return found


def room_of(place: Sequence[int]) -> int:
    """Return the room of a place, 0 to 3; a gap in a wall belongs to the room on its right or below."""
    return 2 * (place[0] >= SIZE // 2) + (place[1] >= SIZE // 2)


class Shortest:
    """Scripted expert who knows the layout and takes a shortest way; a tenth of its actions are random."""

    def __init__(self, environment: FourRooms, seed: int) -> None:
        self.environment_spec, self._environment = environment.environment_spec, environment
        self._random = np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: the way is found at each step."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the first action of a shortest way to the goal."""
        del observation, deterministic
        is_random = self._random.random() < 0.1
        return np.asarray(self._random.integers(3) if is_random else first_step(self._environment.grid), np.int64)


def first_step(grid: Any) -> int:
    """Return the first action of a shortest way to the goal of a MiniGrid environment without doors."""
    start = (*map(int, grid.agent_pos), int(grid.agent_dir))
    waiting, first = deque([start]), {start: -1}
    while waiting:
        x, y, facing = state = waiting.popleft()
        thing = grid.grid.get(x, y)
        if thing is not None and thing.type == "goal":
            return first[state]
        ahead = (x + int(DIR_TO_VEC[facing][0]), y + int(DIR_TO_VEC[facing][1]))
        there = grid.grid.get(*ahead)
        onward = {LEFT: (x, y, (facing - 1) % 4), RIGHT: (x, y, (facing + 1) % 4)}
        if there is None or there.type == "goal":
            onward[FORWARD] = (*ahead, facing)
        for action, after in onward.items():
            if after not in first:
                first[after] = action if first[state] < 0 else first[state]
                waiting.append(after)
    raise ValueError("the goal is out of reach")


def demonstrations(seed: int, each: int) -> list[Episode]:
    """Record episodes of the expert, `each` on every layout."""
    environment = FourRooms()
    expert = Shortest(environment, seed)
    return [rollout(environment, expert, seed=number) for number in range(LAYOUTS * each)]


def judged(policy: Any) -> dict[str, Any]:
    """Evaluate a policy: pass@1 and pass@10 of the layouts, mean number of rooms visited, success from moved starts."""
    home, moved = FourRooms(), FourRooms(moved=True)
    played = [[rollout(home, policy, seed=layout) for _ in range(ATTEMPTS)] for layout in range(LAYOUTS)]
    solved = [sum(bool(episode.success) for episode in layout) for layout in played]
    visited = [len({*episode.observations["room"].argmax(1).tolist()}) for layout in played for episode in layout]
    elsewhere = [rollout(moved, policy, seed=number).success for number in range(LAYOUTS * MOVED)]
    found = {f"pass@{k}": float(np.mean([pass_at_k(ATTEMPTS, count, k) for count in solved])) for k in (1, 10)}
    return found | {"moved": float(np.mean([bool(each) for each in elsewhere])), "rooms": float(np.mean(visited))}


def trained(kind: str, seed: int, steps: int, each: int) -> dict[str, Any]:
    """Clone the expert, train the clone by one method, and return the figures of both."""
    config = updated(GroupPPOConfig(), SETTINGS, KINDS[kind])
    shown = demonstrations(seed, each)
    training = config.training(FourRooms, steps=0, seed=seed, demonstrations=shown)
    training.run(Silent())  # no step, the clone alone
    found = {"clone": judged(training.policy)}
    training = config.training(FourRooms, steps=steps, seed=seed, demonstrations=shown)
    training.run(Silent())
    return found | {"trained": judged(training.policy), "steps": training.step}


def main() -> None:
    """Run the study of this module as a command: train policies whose results are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--episodes", type=int, default=10, help="of the expert on each layout")
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], help="beginnings of their names")
    parser.add_argument("--out", type=Path, default=Path("rooms"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kinds = [kind for kind in KINDS if kind.startswith(tuple(given.kinds))]
    for seed in range(given.seeds):
        for kind in kinds:
            path = given.out / f"{kind}--{seed}.json"
            if not path.exists():
                write_durably(path, json.dumps(trained(kind, seed, given.steps, given.episodes)).encode())
            print(path.stem, path.read_text(), flush=True)
    print("| objective | pass@1 | pass@10 | from another room | rooms visited |\n|---|---|---|---|---|")
    for kind in kinds:
        found = [json.loads((given.out / f"{kind}--{seed}.json").read_text()) for seed in range(given.seeds)]
        for part in ("clone", "trained") if kind == "return" else ("trained",):
            cells = [", ".join(f"{each[part][key]:.2f}" for each in found) for key in ("pass@1", "pass@10", "moved", "rooms")]
            print(f"| {'clone' if part == 'clone' else kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
