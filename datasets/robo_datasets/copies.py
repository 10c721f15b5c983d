"""Add mirror images of recorded episodes to a dataset."""

from __future__ import annotations

from robo_datasets.dataset import Dataset, DatasetWriter
from robo_datasets.labels import LabelSet, label_sets
from robo_rl.environments.mirror import Mirror


def add_mirrored(source: Dataset, mirror: Mirror, writer: DatasetWriter) -> int:
    """Add the mirror image of every episode, with the labels of the original, and return the number of images.

    The labels hold for the image as well, since a reward for a symmetric task does not depend on left and right.

    Args:
        source: Dataset of the originals.
        mirror: Mirror of the environment.
        writer: Writer of the dataset to which the images are added; it may be that of `source`.
    """
    images = {entry.identity: writer.add(mirror.episode(source.read(entry))).identity for entry in source.entries()}
    for name in label_sets(source):
        labels, copied = LabelSet(source, name), LabelSet(writer.dataset, name)
        known = {image: labels.read(original) for original, image in images.items()}
        copied.add_all({image: each for image, each in known.items() if each is not None})
    return len(images)
