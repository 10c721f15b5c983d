"""Read dataclasses of settings from plain values, such as those of a YAML file, strictly, and write them as plain values.

An unknown key raises an error that names the nearest known key, a wrong type one that names the allowed type.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from robo_rl.errors import LIKENESS, InvalidSetting, UnknownName


def settings_as(kind: Any, settings: Any, *, source: str, types: Mapping[str, Any] | None = None, group: str = "") -> Any:
    """Make a settings dataclass of the class `kind` from a mapping, strictly checked.

    Args:
        kind: A dataclass; its fields may be dataclasses (groups of settings).
        settings: Field -> plain value.
        source: Name of the settings in error messages.
        types: Field -> type, for fields whose type the dataclass leaves open.
        group: Key of `settings` within the source.

    Raises:
        UnknownName: There is no such key; the message has its path, such as network.hidden.
        InvalidSetting: A value has the wrong type or range, or a required key is missing.
    """
    hints = get_type_hints(kind, include_extras=False) | dict(types or {})
    names = [item.name for item in dataclasses.fields(kind)]
    if not isinstance(settings, Mapping):
        fix = f"write {group}: {{KEY: VALUE}}" if group else None
        raise InvalidSetting(f"{_where(source, group)} must be a mapping.", got=repr(settings), allowed=sorted(names), fix=fix)
    for key in settings:
        if key not in names:
            raise unknown_key(kind, str(key), source, group, types)
    values = {}
    for item in dataclasses.fields(kind):
        key = f"{group}.{item.name}" if group else item.name
        if item.name in settings:
            values[item.name] = _value(hints[item.name], settings[item.name], source, key)
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise InvalidSetting(f"{source} lacks the key {key!r}.", got=sorted(settings), allowed=names)
    return kind(**values)


SYNONYMS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "gamma": ("discount",),
    "total_timesteps": ("steps",),
    "n_timesteps": ("steps",),
    "buffer_size": ("capacity",),
    "train_freq": ("update_every",),
    "gradient_steps": ("updates_per_step",),
    "n_critics": ("critics",),
    "ent_coef": ("entropy_coefficient", "initial_temperature"),
    "target_entropy": ("target_entropy_per_action",),
    "vf_coef": ("value_coefficient",),
    "max_grad_norm": ("max_gradient_norm",),
    "n_epochs": ("epochs",),
    "n_steps": ("steps_per_env", "n_step"),
    "n_envs": ("num_envs", "environments"),
    "net_arch": ("hidden",),
    "policy_kwargs": ("network",),
    "features_extractor_class": ("encoder",),
    "eval_freq": ("evaluation.every",),
    "n_eval_episodes": ("evaluation.episodes_during",),
    "save_freq": ("checkpoint_every",),
    "log_interval": ("log_every",),
}
"""Setting of Stable-Baselines3, its callbacks or its zoo -> names of the same setting here."""


def unknown_key(kind: Any, key: str, source: str, group: str = "", types: Mapping[str, Any] | None = None) -> UnknownName:
    """Make the error for an unknown key of settings.

    Its remedy is a key of the same meaning elsewhere in the settings, or a similar key.
    """
    within = [item.name for item in dataclasses.fields(kind)]
    start = f"{group}." if group else ""
    is_near = bool(difflib.get_close_matches(key, within, n=1, cutoff=LIKENESS))
    found = nested_key(kind, key) or ("" if is_near else nested_key(kind, key, likeness=0.75))
    of = f"key of {group} in {source}:" if group else f"key in {source}:"
    certain = f"write {start}{place}" if (place := place_of(kind, key, types)) else ""
    return UnknownName(of, key, within, fix=f"write {start}{found}" if found else None, certain=certain)


def place_of(kind: Any, key: str, types: Mapping[str, Any] | None = None) -> str:
    """Return the path of a settings field with this name, or one of the same meaning (`SYNONYMS`); "" if there is none.

    Fields near the top, and those of `learner`, come first. types: field -> type, for fields whose type the dataclass leaves
    open.
    """
    paths = [*_paths(kind, types)]
    paths.sort(key=lambda path: path.count("."))
    names = (key, *SYNONYMS.get(key, ()))
    return next((path for name in names for path in paths if path == name or path.endswith(f".{name}")), "")


def _paths(kind: Any, types: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the paths of all fields of a dataclass and its groups, those of `learner` first."""
    hints = get_type_hints(kind, include_extras=False) | dict(types or {})
    for item in sorted(dataclasses.fields(kind), key=lambda item: item.name != "learner"):
        yield item.name
        if dataclasses.is_dataclass(hints[item.name]):
            yield from (f"{item.name}.{path}" for path in _paths(hints[item.name], None))


def nested_key(kind: Any, key: str, likeness: float = 1.0) -> str:
    """Return the path GROUP.NAME of a settings field that a key NAME, GROUP_NAME or NAME_GROUP may mean; "" if there is none.

    likeness: smallest similarity of names, 0 to 1; 1 for equal names only.
    """
    groups: list[Any] = [item for item in dataclasses.fields(kind) if dataclasses.is_dataclass(item.default)]
    pairs = [(item.name, inner.name) for item in groups for inner in dataclasses.fields(item.default)]
    spelled: dict[str, str] = {}
    for group, name in pairs:  # of two groups with the same name the first counts
        for written in (f"{name}_{group}", f"{group}_{name}", name):
            spelled.setdefault(written, f"{group}.{name}")
    close = difflib.get_close_matches(key, spelled, n=1, cutoff=likeness)
    return spelled[close[0]] if close else ""


def updated(settings: Any, *changes: Mapping[str, Any], **more: Any) -> Any:
    """Return a copy of settings with changed values.

    Args:
        settings: A dataclass.
        changes: Mappings field -> value; for a group the value is a mapping of what changes in it, {"hidden": (64, 64)}. Later
            mappings win.
        more: Further changes by keyword.

    Raises:
        UnknownName: There is no such field. The settings raise their own errors for wrong values.
    """
    values: dict[str, Any] = {}
    for each in (*changes, more):
        for key, value in each.items():
            if not hasattr(settings, key):
                raise unknown_key(type(settings), key, type(settings).__name__)
            before = values.get(key, getattr(settings, key))
            is_group = dataclasses.is_dataclass(before) and isinstance(value, Mapping)
            values[key] = updated(before, value) if is_group else value
    return dataclasses.replace(settings, **values)


def plain(value: Any) -> Any:
    """Convert a dataclass, mapping or sequence into nested dicts and lists of plain values, as YAML and JSON hold them."""
    if dataclasses.is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _whole(value: Any) -> Any:
    """Return text such as 1e5, which YAML reads as a string, as a whole number; any other value unchanged."""
    is_written_so = isinstance(value, str) and re.fullmatch(r"\d+(?:\.\d+)?[eE]\+?\d{1,2}", value)
    return int(float(value)) if is_written_so and float(value).is_integer() else value


def _where(source: str, key: str) -> str:
    return f"{source}: {key}" if key else source


def _value(hint: Any, value: Any, source: str, key: str) -> Any:
    where = _where(source, key)
    if dataclasses.is_dataclass(hint):
        if value is None:
            raise _without_value(where, "a mapping")
        return settings_as(hint, value, source=source, group=key)
    import pydantic  # takes longer than a command that only lists

    try:
        found = pydantic.TypeAdapter(hint).validate_python(_whole(value) if hint is int else value)
    except pydantic.ValidationError as error:
        problem = f"{hint}: {error.errors()[0]['msg']}"
        if value is None:
            raise _without_value(where, problem) from None
        fix = "write null for no value; None is a word in YAML" if value == "None" else None
        if hint is str and isinstance(value, int | float):
            fix = f"a text that looks like a number is written in quotes, within those of a shell: \"'{value}'\""
        raise InvalidSetting(f"{where} has the wrong type.", got=repr(value), allowed=problem, fix=fix) from None
    if isinstance(value, bool) and not isinstance(found, bool):  # pydantic takes True for 1
        raise InvalidSetting(f"{where} has the wrong type.", got=repr(value), allowed=hint)
    return found


def _without_value(where: str, allowed: str) -> InvalidSetting:
    fix = "leave the key out for its usual value, or give it one"
    return InvalidSetting(f"{where} has no value.", got="None, which is null or nothing in YAML", allowed=allowed, fix=fix)
