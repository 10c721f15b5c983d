"""Worker that labels episodes on a node of a cluster: it gets the file of an episode and returns its labels."""

from __future__ import annotations

from dataclasses import fields

from robo_app.cluster.node_answers import share_answers
from robo_app.recipes.reward_file import read_labeller
from robo_datasets.episode_file import episode_in
from robo_rl.errors import InvalidSetting
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.threads import use_threads
from robo_rl.types import RewardLabels


class NodeLabeller:
    """Reward model on a node; raises InvalidSetting if it differs from the model on the machine of the command."""

    def __init__(self, setup: bytes) -> None:
        message = unpacked(setup)
        use_threads(message["threads"])
        self._spec = EnvironmentSpec.from_json(message["spec"])
        self._model = read_labeller(message["reward"], message["settings"])
        share_answers(self._model, message["workers"])
        if (here := list(self._model.identity)) != message["identity"]:
            raise InvalidSetting(
                "The reward is another one on a node than here.",
                got=" ".join(here),
                allowed=" ".join(message["identity"]),
                fix="put the same files (weights, programs) at the same path on every node",
            )

    def work(self, task: bytes) -> bytes:
        """Label one episode.

        task: packed message with `name` and `content` of the episode's file. Returns the packed labels.
        """
        message = unpacked(task)
        found = episode_in(message["name"], message["content"].tobytes())
        self._spec.require(found.spec, what=f"Episode {message['name']} is of another environment than the dataset")
        labels = next(self._model.label_all([found.episode]))
        return packed({field.name: getattr(labels, field.name) for field in fields(RewardLabels)})
