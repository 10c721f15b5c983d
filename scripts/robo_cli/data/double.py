"""robo-rl data mirror: make a dataset twice as large, of mirror images."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from robo_app.arguments.positionals import DATASET
from robo_datasets.atomic_write import atomic_write, require_free
from robo_datasets.copies import add_mirrored
from robo_datasets.curation import copy_episodes, inherited
from robo_datasets.dataset import Dataset
from robo_rl.environments.make import make_environment
from robo_rl.environments.mirror import mirror_of
from robo_rl.errors import InvalidSetting


@dataclass(frozen=True)
class Mirrored:
    """Copy a dataset's episodes and their mirror images, in which left and right are exchanged, into a new one."""

    dataset: DATASET
    out: Path
    """Folder of the new dataset."""


def mirror(arguments: Mirrored) -> int:
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
