"""robo-rl data mirror: make a dataset twice as large, of mirror images."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_app.arguments.positionals import DATASET
from robo_datasets.atomic_write import atomic_write, require_free
from robo_datasets.curation import copy_episodes, inherited
from robo_datasets.dataset import Dataset, DatasetWriter
from robo_datasets.labels import LabelSet, label_sets
from robo_papers.gr_rl.arm_mirror import arm_mirror
from robo_papers.gr_rl.mirror import Mirror
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_sims.arm.environment import ArmEnv

EXAMPLES = "robo-rl data mirror data/pick --out data/both-ways"


@dataclass(frozen=True)
class Mirrored:
    """Copy a dataset's episodes and their mirror images, in which left and right are exchanged, into a new one."""

    dataset: DATASET
    out: Path
    """Folder of the new dataset."""


def run(arguments: Mirrored) -> int:
    """Make a dataset twice as large."""
    source = Dataset(arguments.dataset)
    card = inherited([source.card])
    if not card:
        raise InvalidSetting(f"{source.path} does not name its environment.", fix="record it with robo-rl record")
    with closing(make_environment(card["environment"], **(card["arguments"] or {}))) as environment:
        image = mirror_of(environment, card["environment"])
        require_free(arguments.out)
        image.spec.require(source.spec, what=f"{source.path} was recorded in another environment than its card names")
    card |= {"mirrored_from": {str(source.path): source.card}}
    with atomic_write(arguments.out) as draft, Dataset.create(draft, source.spec, card).writer() as writer:
        copied = copy_episodes(source, source.entries(), writer)
        added = add_mirrored(source, image, writer)
    print(f"{copied} episodes and {added} mirror images in {arguments.out}")
    return 0


def mirror_of(environment: Any, name: str) -> Mirror:
    """Return the `Mirror` of a symmetric environment: the object that mirrors its observations and actions.

    Raises InvalidSetting for an environment that is no task of the arm and has no attribute `mirror`.
    """
    if isinstance(environment.unwrapped, ArmEnv):
        return arm_mirror(environment.unwrapped.environment_spec)
    try:
        found: Mirror = environment.get_wrapper_attr("mirror")
    except AttributeError:
        raise InvalidSetting(
            f"{name} is not known to be symmetric.",
            got="no attribute `mirror`",
            allowed="an environment with one, and the arm tasks",
        ) from None
    return found


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
