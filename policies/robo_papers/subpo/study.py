"""Cover a grid of 12 x 12: policy gradients with the gain of each step, with all that was covered, and with a reward of places.

python -m robo_papers.subpo.study --seeds 3
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch

from robo_app.experiments.results import Results, add_archive_option

SIZE, LONGEST, BATCH, UPDATES, RATE = 12, 30, 128, 80, 1e-1
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1], [0, 0]])
KINDS = {
    "gains": "gain of each step (SubPO)",
    "all": "all that was covered so far",
    "places": "number of cells around each place",
}


def around(cells: np.ndarray) -> np.ndarray:
    """Return for each of B places (B, 2) which of the 144 cells are within one step, also diagonally: (B, 144)."""
    rows = np.abs(np.arange(SIZE)[None] - cells[:, :1]) <= 1
    columns = np.abs(np.arange(SIZE)[None] - cells[:, 1:]) <= 1
    found: np.ndarray = (rows[:, :, None] & columns[:, None]).reshape(len(cells), -1)
    return found


def covered_share(kind: str, seed: int) -> float:
    """Train a policy, and return the mean share of grid cells that its episodes cover over the last ten updates."""
    random = np.random.default_rng(seed)
    logits = torch.zeros(LONGEST, SIZE * SIZE, len(MOVES), requires_grad=True)
    optimizer, shares = torch.optim.Adam([logits], lr=RATE), list[float]()
    for _ in range(UPDATES):
        policy = torch.softmax(logits, -1).detach().numpy().astype(np.float64)
        cells = np.full((BATCH, 2), SIZE // 2)
        seen = around(cells)
        places, actions, paid = [], [], []
        for time in range(LONGEST):
            place = cells[:, 0] * SIZE + cells[:, 1]
            chances = policy[time, place].cumsum(1)
            action = (random.random((BATCH, 1)) * chances[:, -1:] > chances).sum(1)
            cells = np.clip(cells + MOVES[action], 0, SIZE - 1)
            now = around(cells)
            gain = (now & ~seen).sum(1)
            seen |= now
            places.append(place)
            actions.append(action)
            paid.append({"gains": gain, "all": seen.sum(1), "places": now.sum(1)}[kind].astype(np.float64))
        rewards = np.stack(paid)
        # the released script of the paper weighs a step by all that was covered until then, not by what comes after it
        worth = rewards if kind == "all" else rewards[::-1].cumsum(0)[::-1]
        worth = worth - worth.mean(1, keepdims=True)
        weights = torch.from_numpy(worth / (worth.std() + 1e-9))
        times = torch.arange(LONGEST)[:, None].expand(-1, BATCH)
        chosen = torch.log_softmax(logits, -1)[times, torch.from_numpy(np.stack(places)), torch.from_numpy(np.stack(actions))]
        optimizer.zero_grad()
        (-(weights * chosen).sum() / BATCH).backward()
        optimizer.step()
        shares.append(float(seen.mean()))
    return float(np.mean(shares[-10:]))


def covered(kind: str, seed: int) -> dict[str, float]:
    """Train a policy, and return the share of grid cells that it covers, by name."""
    return {"covered": covered_share(kind, seed)}


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    add_archive_option(parser, "subpo")
    given = parser.parse_args()
    results = Results("subpo", given.archive, {"longest": LONGEST, "batch": BATCH})
    print("| a step is weighed by | share of cells covered, each seed |\n|---|---|")
    for kind, name in KINDS.items():
        found = [results.measured(name, seed, partial(covered, kind, seed))["covered"] for seed in range(given.seeds)]
        print(f"| {name} | {', '.join(f'{share:.2f}' for share in found)} |", flush=True)


if __name__ == "__main__":
    main()
