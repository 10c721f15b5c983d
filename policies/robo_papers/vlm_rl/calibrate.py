"""robo-rl reward calibrate: find the interval of a reward that needs one, on episodes of its task, and write it down."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
import yaml

from robo_app.display.display import counted
from robo_app.recipes.reward_file import read_reward
from robo_datasets.dataset import Dataset
from robo_papers.vlm_rl.reward import PERCENTILES, ContrastingLanguageGoals, require_enough
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.runs.run import write_text
from robo_rl.settings import plain

EXAMPLES = "robo-rl reward calibrate safe.yaml --dataset data/drive --out safe-calibrated.yaml"


@dataclass(frozen=True)
class Calibrate:
    """Find the interval of contrasting language goals (clg) on recorded episodes; refuses uninformative ones."""

    reward: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="REWARD.yaml")]
    """A YAML file with `reward: clg` and `settings`."""
    dataset: Path
    """Dataset with both desired and undesired episodes."""
    out: Path
    """A new file: the same reward with its interval."""
    episodes: int = 100
    """Maximum number, evenly chosen."""
    percentiles: tuple[float, float] = PERCENTILES
    """Percentiles of the pictures' differences at which safety is 1 and 0: 50 95 if more than half of the pictures are safe."""

    def __post_init__(self) -> None:
        low, high = self.percentiles
        require_allowed(self, {"percentiles": (0 <= low < high <= 100, "two from 0 to 100, the lower first")})


def run(arguments: Calibrate) -> int:
    """Calibrate a reward, write the file and print the interval."""
    reward = read_reward(arguments.reward, {})
    if not isinstance(reward, ContrastingLanguageGoals):
        raise InvalidSetting("This reward needs no calibration.", got=type(reward).__name__, allowed="clg")
    if arguments.out.exists():
        raise InvalidSetting(f"{arguments.out} is there already.", fix="name a new file: an interval is never changed unseen")
    dataset = Dataset(arguments.dataset)
    entries = dataset.entries()
    require_enough(min(arguments.episodes, len(entries)))  # before any is read
    places = np.linspace(0, len(entries) - 1, min(arguments.episodes, len(entries))).round().astype(int).tolist()
    chosen = [entries[place] for place in places]
    read = (dataset.read(entry) for entry in counted("calibrate", "episodes", chosen))
    found, noise = reward.calibrated(read, arguments.percentiles)
    settings: Any = {item.name: plain(getattr(found, item.name)) for item in fields(found)}
    write_text(arguments.out, yaml.safe_dump({"reward": found.method, "settings": settings}, sort_keys=False))
    print(
        f"safety is 1 at {found.low:.4g} and below, 0 at {found.high:.4g} and above (standard error of the width {noise:.2g})"
    )
    print(f"label with it: robo-rl label {dataset.path} --reward {arguments.out} --name NAME")
    return 0
