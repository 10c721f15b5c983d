"""robo-rl data critique: turn remarks on spans of time into rewards of steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from robo_app.arguments.free_settings import ModelSettings
from robo_app.arguments.positionals import DATASET
from robo_datasets.dataset import Dataset
from robo_datasets.labelling import write
from robo_papers.text2grad.criticism import criticised
from robo_papers.text2grad.spans import Paid, SpanFeedback, span_rewards
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.identity import hash_of
from robo_rl.types import Labels

EXAMPLES = "robo-rl data critique data/pick --name criticised"


@dataclass(frozen=True)
class Critique:
    """Label a dataset by its remarks, such as "2.1-3.0 s poor: gripper too fast" (robo-rl data view takes them down)."""

    dataset: DATASET
    name: str
    """Name of the label set."""
    weight: float = 1.0
    """Reward of a good step; a poor one gets as much below 0."""
    paid: Paid = "each"
    """each: every step of a span; last: its last one; shared: the weight is shared out among them."""
    recorded: bool = True
    """Add it to the recorded rewards."""
    llm: str = ""
    """Language model that first remarks on every episode without a criticism: a judge such as `local` or `endpoint`, or a YAML
    file that names one; the captioner describes the episodes to it."""
    llm_settings: ModelSettings = field(default_factory=dict)
    """Setting of the judge, such as --llm.settings.model qwen3"""
    captioner: str = "minigrid"
    """Describes steps in words; entry point of robo_rl.captioners."""

    def __post_init__(self) -> None:
        if not np.isfinite(self.weight):
            raise InvalidSetting("weight is out of range.", got=self.weight, allowed="a finite number")


def run(arguments: Critique) -> int:
    """Write the labels, and print how many remarks were used."""
    dataset = Dataset(arguments.dataset)
    if arguments.llm:
        _ask(arguments, dataset)
    used, other, missed = 0, 0, list[str]()
    found: dict[str, Labels] = {}
    text = f"{arguments.weight} {arguments.paid} {arguments.recorded}"
    criticised = []
    for entry in dataset.entries():
        notes = dataset.catalogue.notes(entry.identity)
        spans = [span for span in map(SpanFeedback.read, notes) if span is not None]
        used, other = used + len(spans), other + len(notes) - len(spans)
        episode = dataset.read(entry)
        rewards, beyond = span_rewards(episode.timestamps, spans, paid=arguments.paid)
        missed += [f"{entry.identity}: {span.start:g}-{span.stop:g} s" for span in beyond]
        base = episode.rewards.astype(np.float64) if arguments.recorded else np.zeros(len(episode))
        found[entry.identity] = Labels.finite((base + arguments.weight * rewards).astype(np.float32))
        criticised += [entry.identity, *notes]
    if not used:
        raise InvalidSetting(
            f"No remark on {dataset.path} is a criticism of a span.",
            got=f"{other} remarks",
            allowed='remarks such as "2.1-3.0 s poor: gripper too fast" or "0-1.5 s good"',
            fix=f"robo-rl data view {dataset.path} takes remarks down",
        )
    identity = ("critique", hash_of(text.encode(), *(each.encode() for each in criticised)))
    write(dataset, arguments.name, {name: each.by(identity) for name, each in found.items()})
    print(f"{used} criticised spans in {arguments.name}; {other} other remarks; train with --labels {arguments.name}")
    if missed:
        print(f"warning: {len(missed)} spans lie beyond their episodes: {', '.join(missed[:5])}")
    return 0


def _ask(arguments: Critique, dataset: Dataset) -> None:
    """Note the remarks of a language model on episodes that have no criticism."""
    captioner = load("captioners", arguments.captioner)()
    captioner.require(dataset.spec)
    entries = [entry for entry in dataset.entries() if not any(map(SpanFeedback.read, dataset.catalogue.notes(entry.identity)))]
    with language_model(arguments.llm, arguments.llm_settings) as model:
        for entry in entries:  # one at a time: what is noted is kept if the command is killed
            episode = dataset.read(entry)
            for note in criticised(model, [episode], captioner, episode.instruction or "")[0]:
                dataset.catalogue.note(entry.identity, note)
        print(model.report())
