"""robo-rl data personal: copy a dataset for several people, who are then observed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from robo_app.arguments.positionals import DATASET
from robo_datasets.atomic_write import atomic_write, require_free
from robo_datasets.curation import inherited
from robo_datasets.dataset import Dataset, DatasetWriter
from robo_papers.vpl.reward import USER, SavedUsers
from robo_papers.vpl.wrapper import personal_spec
from robo_rl.errors import InvalidSetting

EXAMPLES = "robo-rl data personal data/pick --users rewards/users --out data/personal"


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


def run(arguments: Personal) -> int:
    """Make a dataset of the environment in the wrapper `personal`."""
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


def add_personal(source: Dataset, users: SavedUsers, writer: DatasetWriter, each: int, seed: int = 0) -> int:
    """Add every episode for `each` users, drawn by chance, with the user's latent as an entry; return the number of copies.

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
