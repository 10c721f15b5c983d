"""robo-rl reward fit classifier: learn to see success, say how far to believe it, and keep it in a folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from robo_app.display.display import counted
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_rl.rewards.fitted_folder import require_empty
from robo_rl.rewards.success.classifier import ClassifierConfig, fit
from robo_rl.rewards.success.classifier_page import write_classifier
from robo_rl.rewards.success.classifier_reward import save
from robo_rl.rewards.success.examples import Guard, examples_of, measured, observation_of, split


@dataclass(frozen=True)
class FitClassifier:
    """Fit of a success classifier to recorded successes and all other states, by pictures if there are any, else numbers."""

    dataset: Path
    """Episodes that succeeded and episodes that failed."""
    out: Path
    """Folder of the learned classifier; it must not exist yet."""
    settings: ClassifierConfig = field(default_factory=ClassifierConfig)


def fit_classifier(arguments: FitClassifier) -> int:
    """Fit, set the threshold, save, and print the results on held-out episodes."""
    dataset = Dataset(arguments.dataset)
    require_empty(arguments.out)
    config = replace(arguments.settings, camera=observation_of(dataset.spec, arguments.settings.camera))
    guard = Guard.parse(config.guard) if config.guard else None
    entries = [entry for entry in dataset.entries() if entry.steps]
    taught, held = split([entry.success for entry in entries], config)
    if guard is not None:
        guard.holds(dataset.read(entries[held[0]]).observations)  # an unknown name raises now
    reading = partial(counted, "read", "episodes")
    examples = examples_of(dataset.spec, (dataset.read(entries[i]) for i in reading(taught)), config.camera, config)
    network = fit(*examples, config, partial(counted, "learn", "updates"))
    reading = partial(counted, "measure", "episodes")
    found = measured(network, dataset.spec, (dataset.read(entries[i]) for i in reading(held)), config.camera, guard, config)
    facts = {"dataset": str(dataset.path), "content": content_hash(entries), "episodes": len(taught), "held_out": len(held)}
    facts["identities"] = [entries[i].identity for i in (*taught, *held)]
    save(arguments.out, network, config, dataset.spec, found, facts)
    page = write_classifier(found, config, facts, arguments.out / "classifier.html")
    print(f"looks at {config.camera or 'float observations'}; learned from {len(taught)} episodes, {len(held)} held out")
    print(f"success counts from a probability of {found.threshold:.3f} on" + (f", where {config.guard}" if guard else ""))
    print(f"failed episodes taken for a success: {found.false_positives:.1%} of {found.failures}")
    print(f"successes seen: {found.detected:.1%} of {found.successes}; before they were reached: {found.early:.1%}")
    print(f"expected calibration error {found.error:.3f}; area under the ROC curve of episodes {found.area:.3f}; {page}")
    if found.failures * config.false_positives < 1:
        print(f"warning: {found.failures} failed episodes are too few to tell a rate of {config.false_positives:.1%}")
    label = f"robo-rl label {dataset.path} --reward classifier --reward.settings.folder {arguments.out} --name NAME"
    print(f"label with it: {label}")
    return 0
