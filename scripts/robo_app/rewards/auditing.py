"""Audit of a reward model or of a label set (`robo-rl audit`): options, and collection of the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from robo_app.arguments.free_settings import RewardModelSettings, WrongSettings
from robo_app.display.display import counted
from robo_app.recipes.recipe import require_at_least
from robo_app.recipes.reward_file import read_labeller
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.verdicts import graded
from robo_rl.rewards.audit.evidence import (
    Evidence,
    Progress,
    Shape,
    controls_of,
    gain,
    gather,
    level,
    reads_pictures,
    scored_by,
    stored_scores,
    wrong_instruction,
)
from robo_rl.rewards.audit.result import Audit, concluded
from robo_rl.rewards.audit.verdict import AGREES, USELESS

UNNAMED = "time-to-success"
"""Measure of progress if none is named."""
SHAPES: dict[str, Shape] = {"level": level, "gain": gain}


@dataclass(frozen=True)
class AuditOrder:
    """Compare a reward with recorded progress, try it on spoilt clips, and recommend for or against training on it."""

    dataset: Path
    """Dataset on which the reward is tried; best good and bad episodes to which it was not fitted."""
    out: Path
    """Folder of audit.html and audit.json."""
    reward: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")] = ""
    """A reward model (`robo-rl reward list`), or a YAML file with `reward` and `settings`."""
    settings: RewardModelSettings = field(default_factory=dict)
    """Setting of the reward model, such as --reward.settings.folder rewards/pick"""
    labels: str = ""
    """Instead of a model: a label set of the dataset; without a model there are no spoilt clips."""
    progress: str = UNNAMED
    """Recorded measure of progress: time-to-success, which is unknown in episodes that fail, reward[:TERM], sum[:TERM] (the
    sum so far), or near:OBSERVATION[,OBSERVATION] (the smaller, the better)."""
    shape: Literal["level", "gain"] = "level"
    """Whether a reward measures progress so far, or the progress of the step. Rewards with a `mode` declare it."""
    wrong_text: str = ""
    """An instruction that none of the episodes carries out."""
    wrong_settings: WrongSettings = field(default_factory=dict)
    """Setting that makes the words wrong, for rewards that take words as a setting, such as --wrong.settings.goal cube"""
    clips: int = 10
    """Number of episodes to spoil, among those that did not fail."""
    episodes: int = 0
    """Number of episodes from the start of the dataset; 0 for all."""
    seed: int = 0
    """Seed of all random choices."""

    def __post_init__(self) -> None:
        require_at_least(self, {"clips": 0, "episodes": 0, "seed": 0})
        if bool(self.reward) == bool(self.labels):
            got = "both" if self.reward else "neither"
            raise InvalidSetting("A model is audited, or labels that are there.", got=got, allowed="REWARD or --labels")
        if self.labels and (self.wrong_text or self.wrong_settings or self.settings):
            raise InvalidSetting("Labels that are there cannot be asked for again.", fix="leave the settings out")


def audit_labels(arguments: AuditOrder, dataset: Dataset, entries: list[Entry], progress: Progress) -> tuple[str, Audit]:
    """Return the name of the label set in the options, and its audit on the episodes `entries`."""
    labels = LabelSet.existing(dataset, arguments.labels)
    makers = ", ".join(f"{model} ({weights})" for model, weights in sorted(labels.makers))
    evidence = Evidence()
    for entry in counted(f"audit {arguments.labels}", "episodes", entries):
        subject = stored_scores(labels.read(entry.identity), SHAPES[arguments.shape])
        evidence.episodes += gather([dataset.read(entry)], subject, progress).episodes
    found = concluded(evidence, reads_pictures=False, reads_words=False, was_asked=False)
    return f"label set {arguments.labels} of {makers}", found


def audit_model(arguments: AuditOrder, dataset: Dataset, entries: list[Entry], progress: Progress) -> tuple[str, Audit]:
    """Return the name of the reward model in the options, and its audit on the episodes `entries`, spoilt clips included."""
    shape, settings = SHAPES[arguments.shape], arguments.settings
    model = read_labeller(arguments.reward, settings)
    if arguments.wrong_text and not getattr(model, "hears_instruction", True):
        fix = "--wrong.settings.NAME VALUE, with words that none of the episodes carries out"
        raise InvalidSetting("This reward does not hear the instruction.", got=f"--wrong-text {arguments.wrong_text}", fix=fix)
    subject = scored_by(model, shape)
    sees = reads_pictures(model, dataset.read(entries[0]))
    controls = controls_of(subject, sees=sees)
    if arguments.wrong_text or arguments.wrong_settings:
        wrong = read_labeller(arguments.reward, settings | arguments.wrong_settings)
        controls.append(wrong_instruction(wrong, arguments.wrong_text, shape))
    shown = partial(counted, f"audit {arguments.reward}", "episodes")
    episodes = (dataset.read(entry) for entry in shown(entries))
    evidence = gather(episodes, subject, progress, controls, clips=arguments.clips, seed=arguments.seed)
    evidence.fitted_to = len({entry.identity for entry in entries} & getattr(model, "fitted_to", frozenset()))
    has_wrong_words = bool(arguments.wrong_text or arguments.wrong_settings)
    name, weights = model.identity
    return f"{name} ({weights})", concluded(
        evidence,
        reads_pictures=sees,
        reads_words=has_wrong_words or bool(getattr(model, "reads_words", False)),
        was_asked=True,
        tokens=getattr(model, "tokens", None),
    )


def progress_hint(found: Audit, progress: str, dataset: Dataset, first: Entry) -> str:
    """Return a line that names measures of progress, "" if one was named, or if the reward orders steps well.

    A recorded reward that is the same at nearly all steps, as one for success alone, does not show that.

    Args:
        found: The audit.
        progress: Measure of progress in the options.
        dataset: The dataset.
        first: An episode of it, whose reward terms are named.
    """
    by_progress, by_reward = (found.agreement[f"{truth}, pairs"] for truth in ("progress", "reward"))
    pairs = [by_progress, *([by_reward] if found.agreement["reward, close pairs"].is_measured else [])]
    is_constant = not found.scale["deviation"].interval.estimate > 0
    if progress != UNNAMED or is_constant or any(graded(each, AGREES, USELESS) == "good" for each in pairs):
        return ""
    observed = ", ".join(array.name for array in dataset.spec.observation.vectors.values())
    terms = ", ".join(dataset.read(first).reward_terms)
    return (
        "  hint: steps were compared by recorded reward and time to success, which says nothing of episodes that fail. If a "
        "distance says how near the goal is,\n        name it: --progress near:OBSERVATION[,OBSERVATION] of "
        f"{observed}{f', or reward:TERM of {terms}' if terms else ''}\n"
    )
