"""A reward model on a node of a cluster: takes episodes as their files are, and returns labels."""

from __future__ import annotations

from dataclasses import fields

from robo_cli.node_answers import share_answers
from robo_cli.reward_file import read_labeller
from robo_datasets.episode_file import episode_in
from robo_rl.errors import InvalidSetting
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.threads import use_threads
from robo_rl.types import RewardLabels


class NodeLabeller:
    """Model of the setup on a node; refuses a model that differs from that of the command's machine."""

    def __init__(self, setup: bytes) -> None:
        told = unpacked(setup)
        use_threads(told["threads"])
        self._spec = EnvironmentSpec.from_json(told["spec"])
        self._model = read_labeller(told["reward"], told["settings"])
        share_answers(self._model, told["workers"])
        if (here := list(self._model.identity)) != told["identity"]:
            raise InvalidSetting(
                "The reward is another one on a node than here.",
                got=" ".join(here),
                allowed=" ".join(told["identity"]),
                fix="put the same files (weights, programs) at the same path on every node",
            )

    def work(self, task: bytes) -> bytes:
        """Returns the labels of an episode."""
        told = unpacked(task)
        found = episode_in(told["name"], told["content"].tobytes())
        self._spec.require(found.spec, what=f"Episode {told['name']} is of another environment than the dataset")
        labels = next(self._model.label_all([found.episode]))
        return packed({field.name: getattr(labels, field.name) for field in fields(RewardLabels)})
