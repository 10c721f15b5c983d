"""World: dynamics learned from recorded episodes, with the spec and first states of these; kept in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.fitting import resolve_device
from robo_rl.runs.checkpoints import Checkpoint, has_checkpoint, load_checkpoint, save_checkpoint
from robo_rl.settings import settings_as
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode
from robo_rl.worlds.dynamics import Dynamics, DynamicsConfig
from robo_rl.worlds.fitting import DynamicsFit, Passes, load_arrays, quiet
from robo_rl.worlds.imagining import Imagination
from robo_rl.worlds.steps import Steps, require_predictable

Floats = npt.NDArray[np.float32]

MOST_SEEN = 5000
"""Largest number of recorded steps that a world keeps: to begin in, and to measure the distance to the data."""
UNDER_WAY = "under_way"
"""Folder inside that of the world, which holds the state of a fit that is not finished."""


@dataclass(frozen=True)
class World:
    """Learned model of an environment, in which policies can act.

    E episodes, M kept steps, S elements of a state, A of an action.
    """

    spec: EnvironmentSpec
    dynamics: Dynamics
    firsts: Floats
    """(E, S) states in which recorded episodes began"""
    states: Floats
    """(M, S) recorded states"""
    actions: Floats
    """(M, A) actions that were taken in these states"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Origin: dataset, digest, seeds, held-out errors, `knows_success`; JSON values"""

    @property
    def imagination(self) -> Imagination:
        """Object that simulates steps in this world."""
        return Imagination(self.spec, self.dynamics)

    @property
    def knows_success(self) -> bool:
        """True if the recorded episodes told whether they succeeded."""
        return bool(self.facts.get("knows_success", False))

    def on(self, device: str) -> World:
        """Return the world with its networks moved to a device."""
        self.dynamics.to(resolve_device(device))
        return self

    def require(self, spec: EnvironmentSpec, what: str) -> None:
        """Raise SpecMismatch, with `what` as first words, unless `spec` equals that of the world."""
        fix = f"name data of {self.spec.name}, or fit another world: robo-rl world fit DATASET --out NEW"
        replace(self.spec, max_steps=spec.max_steps).require(spec.single, what=what, fix=fix)

    def distances(self, states: Floats, actions: Floats) -> npt.NDArray[np.float64]:
        """Return the distance (N,) of steps, states (N, S) and actions (N, A), to the nearest kept step.

        In units of the distance that 95 % of the kept steps have at most to their own nearest neighbour: above 1 a step is
        farther from the data than they are from each other.
        """
        network = self.dynamics.network
        kept, asked = (
            (torch.from_numpy(np.concatenate(pair, 1)) - network.mean.cpu()) / network.deviation.cpu()
            for pair in ((self.states, self.actions), (states, actions))
        )
        nearest = torch.cat([torch.cdist(part, kept).amin(1) for part in asked.split(256)])
        some = kept[torch.linspace(0, len(kept) - 1, min(len(kept), 500)).long()]
        usual = torch.cat([torch.cdist(part, kept).topk(2, 1, largest=False).values[:, 1] for part in some.split(256)])
        return (nearest / usual.quantile(0.95).clamp(min=1e-9)).numpy().astype(np.float64)

    def save(self, folder: Path) -> None:
        """Write the world durably into a folder; the folder exists under its name only when it is complete."""
        arrays = {name: values.detach().cpu() for name, values in self.dynamics.state_dict().items()}
        state = {
            "spec": self.spec.to_json(),
            "settings": asdict(self.dynamics.config),
            "facts": dict(self.facts),
            "dynamics": arrays,
            **{name: getattr(self, name) for name in ("firsts", "states", "actions")},
        }
        save_checkpoint(folder, Checkpoint(0, {"world": state}))


def load_world(folder: str | Path) -> World:
    """Return the world in a folder.

    Raises CheckpointCorrupt if there is none or it is damaged, InvalidSetting if something else is there.
    """
    path = Path(folder)
    again = "name the folder of one that was fitted, or fit one: robo-rl world fit DATASET --out NEW"
    if not has_checkpoint(path):
        got = f"no such folder in {Path.cwd()}" if not path.is_dir() else "a folder without one"
        if (path / UNDER_WAY).exists():
            got, again = "a fit that is not over", "go on with it by the same `robo-rl world fit` command"
        raise CheckpointCorrupt(f"There is no world in {folder}.", got=got, fix=again)
    parts = load_checkpoint(path).parts
    if "world" not in parts:
        raise InvalidSetting(f"{folder} holds no world.", got=", ".join(parts), fix=again)
    state = parts["world"]
    spec, config = EnvironmentSpec.from_json(state["spec"]), settings_as(DynamicsConfig, state["settings"], source=str(path))
    firsts, states, actions = (np.array(state[name]) for name in ("firsts", "states", "actions"))
    dynamics = Dynamics(states.shape[1], actions.shape[1], config)
    load_arrays(dynamics, state["dynamics"])
    return World(spec, dynamics.eval(), firsts, states, actions, state["facts"])


def fit_world(
    spec: EnvironmentSpec,
    episodes: Iterable[Episode],
    config: DynamicsConfig = DynamicsConfig(),  # noqa: B008 (frozen)
    *,
    folder: Path | None = None,
    facts: Mapping[str, Any] = {},
    passes: Passes = quiet,
    shuffles_actions: bool = False,
) -> World:
    """Learn a world from recorded episodes; a fit that was interrupted goes on in its folder, bit for bit.

    Args:
        spec: Spec of the episodes.
        episodes: Recorded episodes.
        config: Settings of the ensemble.
        folder: Folder in which the state is kept after each pass, and the world in the end; None keeps nothing.
        facts: Origin of the episodes, JSON values; a fit under way only goes on with the same ones.
        passes: Shows progress.
        shuffles_actions: A control: each step has the action of another one.

    Raises:
        InvalidSetting: Observations cannot be predicted, there are too few or unsound steps, or the folder has another fit.
        NonFiniteUpdate: The loss is not finite.
    """
    require_predictable(spec)
    parts, firsts, told = list[Steps](), list[Floats](), set[bool | None]()
    for episode in episodes:
        if len(episode):
            parts.append(Steps.of_episode(spec, episode))
            firsts.append(parts[-1].states[0])
            told.add(episode.success)
    if not parts:
        raise InvalidSetting("There are no steps to learn a world from.", got="no episode", fix="record some: robo-rl record")
    steps, random = Steps.joined(parts), np.random.default_rng([config.seed, 1])
    learned = steps.with_shuffled_actions(random) if shuffles_actions else steps
    origin = {**facts, "episodes": len(parts), "steps": len(steps), "knows_success": told != {None}}
    origin |= {"shuffled_actions": True} if shuffles_actions else {}
    under_way = DynamicsFit(learned, config)
    dynamics = under_way.run(passes, _keeping(under_way, folder, origin))
    kept = steps.rows(random.permutation(len(steps))[:MOST_SEEN])
    origin |= {"epochs": under_way.epoch, "held_out_errors": under_way.errors.tolist()}
    return World(spec, dynamics.cpu().eval(), np.stack(firsts), kept.states, kept.actions, origin)


def _keeping(fit: DynamicsFit, folder: Path | None, origin: Mapping[str, Any]) -> Callable[[], None]:
    """Return a function that keeps the state of a fit, after restoring the one that is kept already."""
    if folder is None:
        return lambda: None
    place, identity = folder / UNDER_WAY, {"origin": dict(origin), "settings": asdict(fit.config)}
    if has_checkpoint(place):
        state = load_checkpoint(place).parts["fit"]
        if state["identity"] != _as_json(identity):
            raise InvalidSetting(
                f"Another fit is under way in {folder}.",
                got="other data or settings",
                fix="name a new folder, or go on with the same command as before",
            )
        fit.load_state_dict(state["state"])

    def keep() -> None:
        save_checkpoint(place, Checkpoint(fit.epoch, {"fit": {"identity": identity, "state": fit.state_dict()}}), kept=1)

    return keep


def _as_json(value: Any) -> Any:
    """Return a value as it comes back from a file: tuples are lists."""
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
