"""Make a reward model from its name, from a YAML file with name and settings, or from the file of a reward program."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.rewards import RewardModel
from robo_rl.settings import settings_as
from robo_rl.system.plain_files import read_yaml

PROGRAM, PIPELINE, FUNCTION = "program:", "pipeline", "function"
OWN = "a function of your own is package.module:function, one in the sandbox program:FILE.py (docs/rewards/program-rewards.md)"
"""Advice that the error for an unknown reward gives."""
SHIPPED = Path(str(files("robo_app") / "rewards" / "programs"))
"""Folder of the programs that come with the package."""


def read_reward(name: str, settings: Mapping[str, Any]) -> RewardModel:
    """Return a reward model by name or from a YAML file with `reward` and `settings`, updated by `settings`.

    Raises UnknownName, and InvalidSetting naming the setting.
    """
    name, settings = named_reward(name, settings)
    model: RewardModel = settings_as(load("rewards", name, fix=OWN), settings, source=f"the reward {name}")
    return model


def named_reward(name: str, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a reward and its settings, read from its YAML file if `name` is one; raises InvalidSetting.

    "program:PATH" is short for the reward `program` with that path, also in such a file and among the sources of a pipeline;
    "package.module:function" is short for the reward `function` with that function.
    """
    if name.endswith((".yaml", ".yml")) and not name.startswith(PROGRAM):
        found = _read(Path(name))
        name, settings = str(found["reward"]), {**(found.get("settings") or {}), **settings}
    if name.startswith(PROGRAM):
        name, settings = "program", {**settings, "path": str(program_file(name.removeprefix(PROGRAM)))}
    elif ":" in name:
        name, settings = FUNCTION, {**settings, "function": name}
    elif name == PIPELINE and isinstance(sources := settings.get("sources"), list | tuple):
        settings = {**settings, "sources": [_source(each) for each in sources]}
    return name, settings


def read_labeller(name: str, settings: Mapping[str, Any]) -> RewardModel:
    """Return a reward model that can label recorded episodes.

    Raises InvalidSetting for one that is learned while a policy acts, and the errors of `read_reward`.
    """
    model = read_reward(name, settings)
    if not model.learns_in_a_run:
        return model
    inside = ", or the program that it learns from: program:PATH" if hasattr(model, "runner") else ""
    raise InvalidSetting(
        f"The reward {name} is learned while a policy acts, and has no labels for recorded episodes.",
        allowed=f"robo-rl train RECIPE --reward.name {name}; what it paid is in robo-rl report RUN",
        fix=f"train with it, or name another reward for recorded episodes (robo-rl reward list){inside}",
    )


def program_file(name: str) -> Path:
    """Return the file of a reward program, given as a path or as the name of one of the package, such as arm_push.

    Raises UnknownName for a bare word that is neither; a missing path raises at its first read.
    """
    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) != 1:
        return path
    if name not in shipped_programs():
        raise UnknownName("reward program", name, shipped_programs(), fix="or the path of a .py file")
    return SHIPPED / f"{name}.py"


def shipped_programs() -> list[str]:
    """Return the names of the programs that come with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.py") if path.stem != "__init__")


def _source(raw: Any) -> Any:
    """Return a source of a pipeline in which `program:NAME` is replaced by the reward `program` with its file."""
    reward = raw.get("reward") if isinstance(raw, Mapping) else None
    if not isinstance(reward, str) or not reward.startswith(PROGRAM):
        return raw
    file = program_file(reward.removeprefix(PROGRAM))
    return {"name": file.stem, **raw, "reward": "program", "settings": {**(raw.get("settings") or {}), "path": str(file)}}


def _read(path: Path) -> dict[str, Any]:
    found = read_yaml(path)
    if not isinstance(found, dict) or "reward" not in found or found.keys() - {"reward", "settings"}:
        got = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise InvalidSetting(f"{path} is not a reward.", got=got, allowed="the keys reward and settings")
    if not isinstance(found.get("settings") or {}, dict):
        raise InvalidSetting(f"{path}: settings must be a mapping.", got=repr(found["settings"]), allowed="NAME: VALUE")
    return found
