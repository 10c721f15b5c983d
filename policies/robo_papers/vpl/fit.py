"""robo-rl reward fit vpl: learn a reward for each of several raters from their comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from robo_app.rewards.preference_rows import Rows, pairs_of
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_datasets.preferences import PreferenceSet
from robo_papers.vpl.model import UsersConfig, fit_users
from robo_papers.vpl.reward import save
from robo_rl.rewards.fitted_folder import require_empty
from robo_rl.system.threads import fitting

EXAMPLES = "robo-rl reward fit vpl --dataset data/pick --preferences everybody --out rewards/users"


@dataclass(frozen=True)
class FitVPL:
    """Rewards of people who differ: to comparisons of `robo-rl prefer` by several raters (VPL)."""

    dataset: Path
    """Dataset of the compared segments."""
    preferences: str
    """The set of comparisons, by two raters or more."""
    out: Path
    """A new folder."""
    settings: UsersConfig = field(default_factory=UsersConfig)


@fitting
def run(arguments: FitVPL) -> int:
    """Fit, save, and print the accuracy on held-out answers by the number of known ones."""
    require_empty(arguments.out)
    dataset = Dataset(arguments.dataset)
    usable = [each for each in PreferenceSet.existing(dataset, arguments.preferences) if each.label != "skip"]
    entries = dataset.entries()
    rows = Rows(dataset, entries)
    raters = sorted({each.rater for each in usable})
    answers = {rater: pairs_of([each for each in usable if each.rater == rater], rows) for rater in raters}
    found = fit_users(answers, rows.steps(), arguments.settings)
    identities = sorted({identity for each in usable for identity, _, _ in (each.first, each.second)})
    facts = {"dataset": str(dataset.path), "content": content_hash(entries), "preferences": arguments.preferences}
    save(arguments.out, found, answers, arguments.settings, dataset.spec, facts | {"identities": identities})
    for rater, pairs in answers.items():
        print(f"user {rater}: {len(pairs.labels)} answers")
    shares = ", ".join(f"{share:.1%} from {count}" for count, share in found.accuracies.items())
    print(f"held-out answers that are predicted right, by the number of known ones: {shares}")
    print(f"control, known answers replaced by coin flips: {found.chance:.1%}")
    settings = f"--reward.settings.folder {arguments.out}"
    print(f"label with it: robo-rl label {dataset.path} --reward vpl {settings} --reward.settings.user USER --name NAME")
    return 0
