"""robo-rl data mirror, personal: make larger datasets, of mirror images or for several people."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from robo_app.arguments.positionals import DATASET
from robo_app.training.personal import personal_spec
from robo_datasets.atomic_write import atomic_write, require_free
from robo_datasets.copies import add_mirrored, add_personal
from robo_datasets.curation import copy_episodes, inherited
from robo_datasets.dataset import Dataset
from robo_rl.environments.make import make_environment
from robo_rl.environments.mirror import mirror_of
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.users.rewards import SavedUsers


@dataclass(frozen=True)
class Mirrored:
    """Copy a dataset's episodes and their mirror images, in which left and right are exchanged, into a new one."""

    dataset: DATASET
    out: Path
    """Folder of the new dataset."""


@dataclass(frozen=True)
class Personal:
    """Copy a dataset's episodes for users of a reward of several people, who are then observed."""

    dataset: DATASET
    users: str
    """Folder of `robo-rl reward fit vpl`."""
    out: Path
    """Folder of the new dataset."""
    each: int = 4
    """Users for each episode, drawn by chance; 0 for all."""

    def __post_init__(self) -> None:
        if self.each < 0:
            raise InvalidSetting("each is out of range.", got=self.each, allowed="0 or more")


def mirror(arguments: Mirrored) -> int:
    """Makes a dataset twice as large."""
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


def personal(arguments: Personal) -> int:
    """Makes a dataset of the environment in the wrapper `personal`."""
    source, users = Dataset(arguments.dataset), SavedUsers(arguments.users)
    card = inherited([source.card])
    if not card:
        raise InvalidSetting(f"{source.path} does not name its environment.", fix="record it with robo-rl record")
    users.spec.require(source.spec, what=f"The users of {arguments.users} compared episodes of another environment")
    own = card["arguments"] or {}
    where = {
        "environment": card["environment"],
        "arguments": {**own, "wrappers": [*own.get("wrappers", ()), {"name": "personal", "users": arguments.users}]},
    }
    card = where | {"personal_from": {str(source.path): source.card}}
    require_free(arguments.out)
    spec = personal_spec(source.spec, users)
    with atomic_write(arguments.out) as draft, Dataset.create(draft, spec, card).writer() as writer:
        count = add_personal(source, users, writer, arguments.each)
    print(f"{len(source)} episodes for {count} users each in {arguments.out}")
    print(f"label them: robo-rl label {arguments.out} --reward vpl --reward.settings.folder {arguments.users} --name vpl")
    return 0
