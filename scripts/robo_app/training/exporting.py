"""Export of a run's policy; the exported files are compared with it on recorded or random observations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from robo_app.recipes.recipe import Recipe
from robo_app.training.assembly import policy_of, recipe_of
from robo_app.training.episode_recording import FOLDER
from robo_datasets.dataset import Dataset
from robo_policies.export.exporting import Export, export, random_episodes
from robo_rl.environments.frame_stack import stacked_episode
from robo_rl.runs.run import Run
from robo_rl.settings import plain
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Episode

EPISODES, STEPS = 8, 64
"""Most recorded episodes of the comparison, and most steps of each."""


def export_run(run: Run, to: str, out: Path, *, step: int | None = None, data: Path | None = None) -> Export:
    """Write the policy of a run as files that need no robo-rl.

    Args:
        run: The run.
        to: "onnx", "torchscript" or "safetensors".
        out: New folder for the files.
        step: Step of the policy's checkpoint; None for the newest.
        data: Dataset of observations to compare on; None for the run's episodes, else its demonstrations, else random ones.

    Raises what `robo_policies.export.exporting.export` raises.
    """
    recipe = recipe_of(run)
    policy = policy_of(run, recipe, step)
    dataset = data or _recorded(run, recipe)
    read = policy.environment_spec
    episodes = random_episodes(read) if dataset is None else _observations(Dataset(dataset), read)
    facts = {
        "run": run.path.name,
        "learner": recipe.algorithm,
        "step": run.checkpoints[-1] if step is None else step,
        "wrappers": [plain(wrapper) for wrapper in recipe.environment.wrappers],
    }
    return export(policy, to, out, episodes, facts, origin="random" if dataset is None else "recorded")


def _recorded(run: Run, recipe: Recipe[Any]) -> Path | None:
    """Return the folder of a run's episodes, else of its demonstrations; None if there is neither."""
    named = recipe.demonstrations.dataset
    folders = [run.path / FOLDER, *([Path(named)] if named else [])]
    return next((folder for folder in folders if folder.is_dir() and len(Dataset(folder))), None)


def _observations(dataset: Dataset, read: EnvironmentSpec) -> list[Sequence[Observation]]:
    """Return the first observations of the first episodes; raises SpecMismatch for a dataset of another environment."""
    what = f"The dataset {dataset.path} was recorded in another environment"
    read.single.require(dataset.spec.single.restricted(read.observation), what=what)
    stacked = (stacked_episode(read, dataset.read(entry)) for entry in dataset.entries()[:EPISODES])
    return [_first_observations(episode, read.observation.visible) for episode in stacked]


def _first_observations(episode: Episode, names: Iterable[str]) -> list[Observation]:
    seen = {name: episode.observations[name] for name in names}
    return [{name: values[step] for name, values in seen.items()} for step in range(min(STEPS, len(episode)))]
