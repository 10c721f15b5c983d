"""Read the tuned settings of RL Baselines3 Zoo (Raffin 2020), hyperparams/<algorithm>.yml, as settings of our learners."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from robo_policies.sb3.algorithms import LEARNERS, SB3Config
from robo_policies.sb3.settings import read_expression
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.system.plain_files import parse_yaml

DEFAULT = "default"
"""Name of the section of a zoo file for environments without a section of their own."""
IGNORED = (
    "env_wrapper",
    "vec_env_wrapper",
    "frame_stack",
    "callback",
    "env_kwargs",
    "monitor_kwargs",
    "vec_env_class",
    "replay_buffer_class",
    "replay_buffer_kwargs",
    "rollout_buffer_class",
    "rollout_buffer_kwargs",
    "optimize_memory_usage",
    "stats_window_size",
)
"""Keys of a zoo file that have no meaning here; they are reported to the user."""
CHOSEN_BY_OBSERVATION = ("MlpPolicy", "MultiInputPolicy")
_VERSION = re.compile(r"-v(\d+)$")
NORMALIZATION = {"norm_obs": "observations", "norm_reward": "rewards"}
NOISE = {"noise_type": "type", "noise_std": "std"}
"""Key of a zoo file -> key of a learner's settings group `noise`."""


@dataclass(frozen=True)
class ZooSettings:
    """Tuned settings of one environment from a zoo file, translated to a learner's settings."""

    learner: dict[str, Any]
    """Fields of the learner's settings, by name."""
    steps: int
    """Number of environment steps to train for."""
    ignored: tuple[str, ...]
    """"key: value" of the settings that were left out."""

    @property
    def n_envs(self) -> int:
        """Number of environments that step together; also in `learner`."""
        return int(self.learner.get("n_envs", 1))


def read_zoo(text: str, algorithm: str, environment: str) -> ZooSettings:
    """Return the settings for an environment from the text of a zoo file.

    `algorithm` is the zoo's name ("sac"), `environment` the zoo's ("HalfCheetah-v4") or ours
    ("gymnasium/HalfCheetah-v4"). If its section is missing, the newest other version of the same task replaces it, and
    `ignored` says so, or the section "default". Raises UnknownName for a missing section, an unknown algorithm or key,
    InvalidSetting for text that is not plain data.
    """
    if (learner := f"sb3-{algorithm}") not in LEARNERS:
        raise UnknownName("zoo algorithm", algorithm, [name.removeprefix("sb3-") for name in LEARNERS])
    config = LEARNERS[learner]
    sections, task = _sections(text), environment.rpartition("/")[2]
    name = _closest_section(sections, task)
    section = sections[name]
    settings: dict[str, Any] = {}
    ignored = [] if name == task else [f"version: these are the settings of {name}"]
    for key, value in section.items():
        if key in IGNORED or (key == "policy" and value not in CHOSEN_BY_OBSERVATION):
            ignored.append(f"{key}: {value}")
        elif key not in ("policy", "n_timesteps"):
            settings = _with(settings, _setting(config, key, value))
    return ZooSettings(settings, _steps(section), tuple(ignored))


def _with(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` updated with `more`; groups of settings are merged."""
    groups = {key: {**settings[key], **value} for key, value in more.items() if isinstance(settings.get(key), dict)}
    return {**settings, **more, **groups}


def _sections(text: str) -> dict[str, dict[str, Any]]:
    data = parse_yaml(text, "This zoo file")
    if not isinstance(data, dict) or not all(isinstance(section, dict) for section in data.values()):
        raise InvalidSetting("Not a zoo file.", got=type(data).__name__, allowed="a mapping from environments to settings")
    return data


def _closest_section(sections: Mapping[str, Any], task: str) -> str:
    versions = [name for name in sections if _VERSION.sub("", name) == _VERSION.sub("", task) and _VERSION.search(name)]
    newest = sorted(versions, key=lambda name: int(_VERSION.findall(name)[0]), reverse=True)
    for name in (task, *newest, DEFAULT):
        if name in sections:
            return name
    raise UnknownName("environment of the zoo file", task, sections)


def _steps(section: Mapping[str, Any]) -> int:
    try:
        return int(float(section["n_timesteps"]))
    except (KeyError, TypeError, ValueError):
        got = section.get("n_timesteps", "no such key")
        raise InvalidSetting("n_timesteps is not a number.", got=got, allowed="a number of environment steps") from None


def _setting(config: type[SB3Config], key: str, value: Any) -> dict[str, Any]:
    if key == "normalize":
        return _normalization(value)
    if key == "policy_kwargs":
        return {key: _network(read_expression(value) if isinstance(value, str) else value)}
    if key in NOISE:
        return {"noise": {NOISE[key]: value}}
    types = {item.name: str(item.type) for item in fields(config)}
    if key not in types:
        raise UnknownName("key of the zoo file", key, [*types, *IGNORED, "normalize", "policy", "n_timesteps"])
    is_whole = types[key].startswith("int") and isinstance(value, float) and value.is_integer()  # such as !!float 1e6
    return {key: int(value) if is_whole else value}


def _normalization(value: Any) -> dict[str, Any]:
    chosen = read_expression(value) if isinstance(value, str) else value
    if isinstance(chosen, bool):
        chosen = {name: chosen for name in NORMALIZATION}
    if not isinstance(chosen, dict) or not all(isinstance(switch, bool) for switch in chosen.values()):
        raise InvalidSetting(
            "normalize is not a switch.", got=repr(value), allowed="true, false, or those of norm_obs, norm_reward"
        )
    if unknown := sorted(set(chosen) - set(NORMALIZATION)):
        raise UnknownName("key of normalize", unknown[0], NORMALIZATION)
    return {"normalize": {ours: chosen.get(zoos, True) for zoos, ours in NORMALIZATION.items()}}


def _network(arguments: Any) -> dict[str, Any]:
    if not isinstance(arguments, dict):
        raise InvalidSetting("policy_kwargs is not a mapping.", got=repr(arguments), allowed='{...} or "dict(...)"')
    match arguments.get("net_arch"):
        case [{**heads}]:  # the list around the heads dates from before SB3 1.8
            return arguments | {"net_arch": heads}
    return arguments
