"""Steering cloned from the pictures of a small car, beside the mean and the last action.

    robo-rl data get donkeycar
    python -m robo_bench.steering --data data/donkeycar --out steering.json

The drive is cut into stretches of 200 frames in their order. Each is held out once, and the frames next to it are not learnt
from either, as neighbours show the same. The error is the mean distance from the person's steering, of a range from -1 to 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robo_app.display.markdown_tables import table_lines
from robo_datasets.dataset import Dataset
from robo_datasets.public.driving_tub import CAMERA
from robo_policies.learners.bc import BCConfig
from robo_policies.learners.offline import OfflineNetwork
from robo_rl.environments.encoded import FEATURES, load_encoder
from robo_rl.evaluation.statistics import stratified_bootstrap
from robo_rl.runs.run import circumstances
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Array, Batch

FOLDS, GAP = 5, 20
"""Number of stretches of the recording, each held out of the training once; frames next to a held-out one that are left out,
too."""
SIDES = (64, 48)
"""[pixel] width and height that convolutions see, of the camera's 160 x 120."""
CONVOLUTIONS = (8, 16, 16)
BATCH = 32
STEERING = ActionSpec(("steering",), (-1.0,), (1.0,), ("1",), "drive")
LITE0 = "efficientnet-lite0"
Observed = dict[str, Array]


def drive(path: Path) -> tuple[Array, Array]:
    """Return all pictures (N, H, W, 3), RGB, and the steering (N,), in their order."""
    episodes = list(Dataset(path))
    pictures = np.concatenate([episode.observations[CAMERA][:-1] for episode in episodes])
    return pictures, np.concatenate([episode.actions[:, 0] for episode in episodes])


def folds(count: int) -> Iterator[tuple[Array, Array]]:
    """Yield the rows to learn from and those that are held out."""
    rows = np.arange(count)
    for held_out in np.array_split(rows, FOLDS):
        near = (rows >= held_out[0] - GAP) & (rows <= held_out[-1] + GAP)
        yield rows[~near], held_out


def seen_by(method: str, pictures: Array) -> tuple[Observed, OfflineNetwork]:
    """Return the observations (N, ...) that a method makes of the recorded pictures, and the settings of its network.

    method: frozen image features, or pictures for convolutions.
    """
    if method == LITE0:
        camera = EnvironmentSpec("car", ObservationSpec((_camera(pictures),)), STEERING)
        encoder = load_encoder(f"{LITE0}:imagenet")
        encoder.size(camera)
        return {FEATURES: encoder.encode({CAMERA: pictures})}, OfflineNetwork(hidden=(64,))
    small = np.stack([cv2.resize(picture, SIDES, interpolation=cv2.INTER_AREA) for picture in pictures])
    return {CAMERA: small}, OfflineNetwork(hidden=(64,), convolutions=CONVOLUTIONS)


def errors_of_clone(
    seen: Observed, network: OfflineNetwork, steering: Array, learnt: Array, held_out: Array, seed: int, updates: int
) -> float:
    """Return the mean error on held-out rows of behaviour cloning that has learnt from others."""
    arrays = [_camera(values) if values.ndim == 4 else ArraySpec(name, values.shape[1:]) for name, values in seen.items()]
    spec = EnvironmentSpec("car", ObservationSpec(tuple(arrays)), STEERING)
    learner, generator = BCConfig(batch_size=BATCH, network=network).build(spec, seed), np.random.default_rng(seed)
    for _ in range(updates):
        learner.update(batch_of(seen, steering, generator.choice(learnt, BATCH)))
    rows = ({name: values[row] for name, values in seen.items()} for row in held_out)
    found = np.array([learner.policy.act(row, deterministic=True)[0] for row in rows])
    return float(np.abs(found - steering[held_out]).mean())


def batch_of(seen: Observed, steering: Array, rows: Array) -> Batch:
    """Return rows as a batch, which for cloning needs neither rewards nor what followed."""
    observed, ones = {name: values[rows] for name, values in seen.items()}, np.ones(len(rows), np.float32)
    actions, none = steering[rows, None].astype(np.float32), np.zeros(len(rows), np.int8)
    return Batch(observed, actions, 0 * ones, ones, ones, observed, ones, none)


def measured(pictures: Array, steering: Array, method: str, seeds: int, updates: int) -> list[list[float]]:
    """Return the mean error of each held-out stretch, by seed."""
    seen, network = seen_by(method, pictures)
    return [
        [errors_of_clone(seen, network, steering, *fold, seed, updates) for fold in folds(len(steering))]
        for seed in range(seeds)
    ]


def baselines(steering: Array) -> dict[str, list[list[float]]]:
    """Return the errors of guesses that see no picture."""

    def errors(guess: Callable[[Array, Array], Any]) -> list[list[float]]:
        return [[float(np.abs(guess(*fold) - steering[fold[1]]).mean()) for fold in folds(len(steering))]]

    earlier = {frames: np.concatenate([steering[:1].repeat(frames), steering[:-frames]]) for frames in (1, 10)}
    return {
        "mean of the others": errors(lambda learnt, held_out: steering[learnt].mean()),
        "last action": errors(lambda learnt, held_out: earlier[1][held_out]),
        "action 10 frames before": errors(lambda learnt, held_out: earlier[10][held_out]),
    }


def _camera(pictures: Array) -> ArraySpec:
    return ArraySpec(CAMERA, pictures.shape[1:], "uint8", 0, 255, role="image")


def main() -> None:
    """Print the table, and write it with all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--methods", nargs="+", default=["convolutions", LITE0])
    asked = parser.parse_args()
    pictures, steering = drive(asked.data)
    found = baselines(steering)
    for method in asked.methods:
        found[method] = measured(pictures, steering, method, asked.seeds, asked.updates)
    facts = {"errors": found, "seeds": asked.seeds, "updates": asked.updates, "frames": len(steering), **circumstances()}
    asked.out.write_text(json.dumps(facts, indent=1))
    rows = [
        (name, str(stratified_bootstrap(errors, np.mean)), *_by_seed(errors, asked.seeds)) for name, errors in found.items()
    ]
    heads = ["steering from", "mean error", *(f"seed {seed}" for seed in range(asked.seeds))]
    print("\n".join(table_lines(heads, rows)))


def _by_seed(errors: list[list[float]], seeds: int) -> list[str]:
    means = [f"{np.mean(each):.3f}" for each in errors]
    return [*means, *[""] * (seeds - len(means))]


if __name__ == "__main__":
    main()
