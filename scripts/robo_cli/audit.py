"""robo-rl audit: one page that says whether to trust a reward, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from robo_cli.display import counted
from robo_cli.recipe import require_at_least
from robo_cli.reward_file import read_labeller
from robo_cli.typed_settings import RewardModelSettings, WrongSettings, as_words
from robo_datasets.catalogue import Entry
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash, figures_of
from robo_datasets.labels import LabelSet
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.audit.evidence import (
    Evidence,
    Progress,
    Shape,
    asked,
    controls_of,
    gain,
    gather,
    level,
    progress_of,
    reads_pictures,
    written,
    wrong_instruction,
)
from robo_rl.rewards.audit.page import write_audit
from robo_rl.rewards.audit.result import Audit, concluded
from robo_rl.runs.run import write_text

EXAMPLES = """robo-rl audit oracle --dataset data/pick --out audits/oracle
robo-rl audit preference --reward.settings.folder rewards/pick --dataset data/pick --out audits/learned
robo-rl audit my-reward.yaml --dataset data/pick --wrong-text "push the red cube" --out audits/mine
robo-rl audit --labels mine --dataset data/pick --out audits/labels     (labels that are there already)
robo-rl audit oracle --dataset data/reach --progress near:goal_from_gripper --shape gain --out audits/dense"""
SHAPES: dict[str, Shape] = {"level": level, "gain": gain}


@dataclass(frozen=True)
class AuditOrder:
    """Compare a reward with recorded progress, try it on spoilt clips, and recommend for or against training on it."""

    dataset: Path
    """Episodes it is tried on; best some of all qualities, none of which it was fitted to."""
    out: Path
    """Folder of audit.html and audit.json."""
    reward: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD")] = ""
    """A reward model (`robo-rl reward list`), or a YAML file with `reward` and `settings`."""
    settings: RewardModelSettings = field(default_factory=dict)
    """Setting of the reward model, such as --reward.settings.folder rewards/pick"""
    labels: str = ""
    """Instead of a model: a label set of the dataset; without a model there are no spoilt clips."""
    progress: str = "time-to-success"
    """Recorded measure of progress: time-to-success, reward[:TERM], sum[:TERM] (the sum so far), or
    near:OBSERVATION[,OBSERVATION] (the smaller, the better)."""
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


def run(arguments: AuditOrder) -> int:
    """Audits, showing progress; writes the page and the figures, and prints the verdict."""
    dataset, progress = Dataset(arguments.dataset), progress_of(arguments.progress)
    entries = [entry for entry in dataset.entries()[: arguments.episodes or None] if entry.steps]
    if not entries:
        raise InvalidSetting(f"{dataset.path} has no episodes.", fix="record some: robo-rl record --append")
    name, found = (_audit_labels if arguments.labels else _audit_model)(arguments, dataset, entries, progress)
    figures = figures_of(entries)
    facts = {
        "reward": name,
        "dataset": str(dataset.path),
        "content": content_hash(entries),
        "episodes": figures["episodes"],
        "steps": figures["steps"],
        "success": figures["success"],
        "progress": str(progress),
        "shape": arguments.shape,
        "settings": as_words(arguments.settings),
        "wrong text": arguments.wrong_text or ", ".join(as_words(arguments.wrong_settings)),
        "seed": arguments.seed,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "audit.json", json.dumps(found.to_json() | {"facts": facts}, indent=1, allow_nan=False))
    page = write_audit(found, facts, arguments.out / "audit.html")
    print(f"{name}: {found.verdict.headline}")
    print("".join(f"  - {reason}\n" for reason in found.verdict.reasons) + f"{page}")
    return 0


def _audit_labels(arguments: AuditOrder, dataset: Dataset, entries: list[Entry], progress: Progress) -> tuple[str, Audit]:
    labels = LabelSet.existing(dataset, arguments.labels)
    makers = ", ".join(f"{model} ({weights})" for model, weights in sorted(labels.makers))
    evidence = Evidence()
    for entry in counted(f"audit {arguments.labels}", "episodes", entries):
        subject = written(labels.read(entry.identity), SHAPES[arguments.shape])
        evidence.episodes += gather([dataset.read(entry)], subject, progress).episodes
    found = concluded(evidence, reads_pictures=False, reads_words=False, was_asked=False)
    return f"label set {arguments.labels} of {makers}", found


def _audit_model(arguments: AuditOrder, dataset: Dataset, entries: list[Entry], progress: Progress) -> tuple[str, Audit]:
    shape, settings = SHAPES[arguments.shape], arguments.settings
    model = read_labeller(arguments.reward, settings)
    if arguments.wrong_text and not getattr(model, "hears_instruction", True):
        fix = "--wrong.settings.NAME VALUE, with words that none of the episodes carries out"
        raise InvalidSetting("This reward does not hear the instruction.", got=f"--wrong-text {arguments.wrong_text}", fix=fix)
    subject = asked(model, shape)
    sees = reads_pictures(model, dataset.read(entries[0]))
    controls = controls_of(subject, sees=sees)
    if arguments.wrong_text or arguments.wrong_settings:
        wrong = read_labeller(arguments.reward, settings | arguments.wrong_settings)
        controls.append(wrong_instruction(wrong, arguments.wrong_text, shape))
    shown = partial(counted, f"audit {arguments.reward}", "episodes")
    episodes = (dataset.read(entry) for entry in shown(entries))
    evidence = gather(episodes, subject, progress, controls, clips=arguments.clips, seed=arguments.seed)
    evidence.fitted_to = len({entry.identity for entry in entries} & getattr(model, "fitted_to", frozenset()))
    is_told = bool(arguments.wrong_text or arguments.wrong_settings)
    name, weights = model.identity
    return f"{name} ({weights})", concluded(
        evidence,
        reads_pictures=sees,
        reads_words=is_told or bool(getattr(model, "reads_words", False)),
        was_asked=True,
        tokens=getattr(model, "tokens", None),
    )
