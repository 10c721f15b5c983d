"""Add changed copies of recorded episodes to a dataset: mirror images, and one for each of several people."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from robo_datasets.dataset import Dataset, DatasetWriter
from robo_datasets.labels import LabelSet, label_sets
from robo_rl.environments.mirror import Mirror
from robo_rl.rewards.users.rewards import USER, SavedUsers


def add_mirrored(source: Dataset, mirror: Mirror, writer: DatasetWriter) -> int:
    """Adds the mirror image of every episode, with the labels of the original, and returns their number.

    Labels are as good for the image: a reward that tells left from right is none for a symmetric task.
    """
    images = {entry.identity: writer.add(mirror.episode(source.read(entry))).identity for entry in source.entries()}
    for name in label_sets(source):
        labels, copied = LabelSet(source, name), LabelSet(writer.dataset, name)
        known = {image: labels.read(original) for original, image in images.items()}
        copied.add_all({image: each for image, each in known.items() if each is not None})
    return len(images)


def add_personal(source: Dataset, users: SavedUsers, writer: DatasetWriter, each: int, seed: int = 0) -> int:
    """Adds every episode for `each` users, drawn by chance, with the user's latent as an entry; returns the number of copies.

    each: 0 for all users.
    """
    names, random = users.names, np.random.default_rng(seed)
    count = min(each, len(names)) if each else len(names)
    for entry in source.entries():
        episode = source.read(entry)
        for name in random.permutation(names)[:count].tolist():
            latent = np.tile(users.latent(name), (len(episode) + 1, 1))
            own = {**episode.observations, USER: latent}
            metadata = {**episode.metadata, USER: name}
            writer.add(replace(episode, observations=own, metadata=metadata, spec_fingerprint=writer.dataset.spec.fingerprint))
    return count
