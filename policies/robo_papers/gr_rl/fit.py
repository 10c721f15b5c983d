"""robo-rl reward fit progress: learn how far episodes have got, to find the steps that lost time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from robo_app.display.display import counted
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_papers.gr_rl.critic import ProgressConfig, Track, fit
from robo_papers.gr_rl.reward import key_of, save, tracks_of
from robo_rl.rewards.fitted_folder import require_empty
from robo_rl.system.threads import fitting

EXAMPLES = "robo-rl reward fit progress --dataset data/pick --out rewards/progress"


@dataclass(frozen=True)
class FitProgress:
    """Fit of a critic of progress to recorded successes and failures (GR-RL)."""

    dataset: Path
    """Episodes that succeeded, and possibly some that failed."""
    out: Path
    """A new folder."""
    settings: ProgressConfig = field(default_factory=ProgressConfig)


@fitting
def run(arguments: FitProgress) -> int:
    """Fit a progress critic, save it, and print the numbers of successful and failed episodes."""
    require_empty(arguments.out)
    dataset = Dataset(arguments.dataset)
    entries = [entry for entry in dataset.entries() if entry.steps]
    members, folds = arguments.settings.members, dict[str, int]()
    parts = [list[Track]() for _ in range(members)]
    for number, entry in enumerate(counted("read", "episodes", entries)):
        episode = dataset.read(entry)
        folds[key_of(episode)] = number % members
        parts[number % members] += tracks_of(dataset.spec, episode, dataset.catalogue.notes(entry.identity))
    critic = fit(parts, arguments.settings)
    tracks = [track for part in parts for track in part]
    facts = {"dataset": str(dataset.path), "content": content_hash(entries), "folds": folds}
    facts |= {"identities": [entry.identity for entry in entries]}
    save(arguments.out, critic, arguments.settings, dataset.spec, facts)
    successes = sum(track.success for track in tracks)
    print(f"learned from {successes} successes and {len(tracks) - successes} failures, discount {float(critic.discount):.4f}")
    label = f"robo-rl label {dataset.path} --reward progress --reward.settings.folder {arguments.out} --name kept"
    print(f"label with it: {label}")
    print(f"train on what was kept: robo-rl train offline-bc --dataset {dataset.path} --labels kept")
    return 0
