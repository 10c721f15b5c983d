"""Free settings of the command line: `--GROUP.KEY VALUE`, with a value in YAML; a GROUP of a recipe has the same name.

A command that declares a field as `EnvironmentArguments`, `RewardModelSettings`, ... gets a mapping. Other spellings: several
keys at once are `--GROUP '{KEY: VALUE, ...}'`, a list is `--GROUP.KEY [VALUE, ...]`, and a key of a mapping within the mapping
is `--GROUP.KEY.INNER VALUE`.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import tyro

from robo_rl.environments.wrapping import changed
from robo_rl.errors import InvalidSetting
from robo_rl.system.plain_files import parse_yaml

Values = dict[str, Any]
_JSON = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="VALUE",
    instance_from_str=lambda words: json.loads(words[0]),
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda value: [json.dumps(value)],
)
"""Parser of the single JSON word into which `gather` turns the options of a group."""


@dataclass(frozen=True)
class Group:
    """Group of free settings, such as `environment.arguments`; an annotation of a field."""

    name: str
    has_names: bool = False
    """True if keys are names that the user chooses: a dash is then not read as an underscore, nor a dot as a path."""
    has_paths: bool = True
    """True if `--GROUP.KEY.INNER` sets the key INNER of the mapping KEY; False to keep "KEY.INNER" as one key."""

    def key(self, option: str) -> str | None:
        """Return the key that an option such as `--GROUP.KEY` sets; "" for `--GROUP`, None for an option of another group."""
        start = f"--{self.name}"
        if option != start and not option.startswith(f"{start}."):
            return None
        key = option[len(start) + 1 :]
        return key if self.has_names else key.replace("-", "_")


ARGUMENTS = "environment.arguments"
AROUND = Group("environment.wrappers")
"""Group of options `--environment.wrappers.KEY`: commands pass their values on under `wrappers`, a key of the environment's
arguments."""


def _option(group: str) -> Any:
    return tyro.conf.arg(name=f"{group}.KEY", help_behavior_hint="")


EnvironmentArguments = Annotated[Values, Group("environment.arguments"), _JSON, _option("environment.arguments")]
RewardModelSettings = Annotated[Values, Group("reward.settings"), _JSON, _option("reward.settings")]
WrongSettings = Annotated[Values, Group("wrong.settings"), _JSON, _option("wrong.settings")]
MetaSettings = Annotated[Values, Group("meta.settings"), _JSON, _option("meta.settings")]
RaterSettings = Annotated[Values, Group("rater.settings"), _JSON, _option("rater.settings")]
PreferenceRaterSettings = Annotated[Values, Group("rater.settings"), _JSON, _option("rater.settings")]
ModelSettings = Annotated[Values, Group("llm.settings"), _JSON, _option("llm.settings")]
RecipeKeys = Annotated[Values, Group("recipe", has_paths=False), _JSON, _option("recipe")]
DriverSettings = Annotated[Values, Group("driver.settings"), _JSON, _option("driver.settings")]
TwinSettings = Annotated[Values, Group("twin.settings"), _JSON, _option("twin.settings")]
TeleoperatorSettings = Annotated[Values, Group("teleoperator.settings"), _JSON, _option("teleoperator.settings")]
Cameras = Annotated[Values, Group("cameras", has_names=True), _JSON, _option("cameras")]
Programs = Annotated[Values, Group("programs", has_names=True), _JSON, _option("programs")]
OtherRecipes = Annotated[Values, Group("beside", has_names=True), _JSON, _option("beside")]
Shares = Annotated[Values, Group("into", has_names=True), _JSON, _option("into")]


def typed_value(text: str) -> Any:
    """Return the value of a typed text, read as YAML, in which the word None means None; raises InvalidSetting."""
    return None if text.strip() == "None" else parse_yaml(text, "It")


def as_words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as texts NAME=VALUE, for files."""
    return [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in settings.items()]


def option_words(group: str, settings: Mapping[str, Any]) -> list[str]:
    """Return settings as the words `--GROUP.NAME VALUE ...` of a command line."""
    return [word for name, value in settings.items() for word in (f"--{group}.{name}", _yaml(value))]


def _yaml(value: Any) -> str:
    """Return the text that `typed_value` reads as a value: plain if possible, else JSON."""
    try:
        return value if isinstance(value, str) and typed_value(value) == value else json.dumps(value)
    except InvalidSetting:
        return json.dumps(value)


def groups_of(kind: Any) -> list[Group]:
    """Return the groups of free settings in the fields of a dataclass, nested ones included."""
    return [*_groups(kind)]


def _groups(hint: Any) -> Iterator[Group]:
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
        own = [each for each in metadata if isinstance(each, Group)]
        yield from own or _groups(hint)
    elif get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint):
            yield from _groups(member)
    elif dataclasses.is_dataclass(hint):
        for each in get_type_hints(hint, include_extras=True).values():
            yield from _groups(each)


def gather(words: Sequence[str], groups: Sequence[Group]) -> list[str]:
    """Replace the options of each group by one option with one word of JSON, which tyro can read.

    Args:
        words: Words of a command line.
        groups: Groups that the command has.

    Returns:
        The other words, followed by `--GROUP.KEY JSON` for each group that occurs.

    Raises:
        InvalidSetting: A value is missing or cannot be read.
    """
    left: list[str] = []
    found: dict[str, Values] = {}
    rest = [*words]
    while rest:
        word = rest.pop(0)
        option, is_parted, value = word.partition("=")
        following = [value] if is_parted else [*takewhile(lambda each: not each.startswith("--"), rest)]
        group = next((each for each in groups if each.key(option) is not None), None)
        if group is None and any(each.name == ARGUMENTS for each in groups) and (key := AROUND.key(option)) is not None:
            own = found.setdefault(ARGUMENTS, {})
            own["wrappers"] = with_wrapper(option, own.get("wrappers", ()), key, read_value(option, following))
            rest = rest if is_parted else rest[1:]
            continue
        if group is None:
            left.append(word)
            continue
        require_keys(option, group, following)
        key = group.key(option)
        typed = read_value(option, following)
        settings = found.setdefault(group.name, {})
        if key and group.has_paths and not group.has_names:
            found[group.name] = with_key(option, settings, key, typed)
        else:
            settings.update({key: typed} if key else read_mapping(option, typed))
        rest = rest if is_parted else rest[1:]
    return [*left, *(word for name, each in found.items() for word in (f"--{name}.KEY", json.dumps(each, default=str)))]


def require_keys(option: str, group: Group, values: Sequence[str]) -> None:
    """Raise InvalidSetting for the spelling `--GROUP NAME=VALUE ...`; the error has the right one."""
    pairs = [pair.partition("=") for pair in values if "=" in pair and not pair.startswith("{")]
    if group.key(option) or not pairs:
        return
    raise InvalidSetting(
        f"{option} takes a key, and no NAME=VALUE.",
        got=" ".join([option, *values]),
        allowed=f"--{group.name}.KEY VALUE, the value as in YAML",
        fix=" ".join(f"--{group.name}.{name} {_quoted(value)}" for name, _, value in pairs),
    )


def _quoted(value: str) -> str:
    return f'"{value}"' if not value or " " in value else value


def read_value(option: str, words: Sequence[str]) -> Any:
    """Return the value of an option: the first of the words after it, read as YAML; raises InvalidSetting."""
    if not words:
        raise InvalidSetting(f"{option} has no value.", got="nothing", allowed="a value as in YAML")
    try:
        return typed_value(words[0])
    except InvalidSetting as error:
        got = f"{words[0]}: {' '.join(str(error).split())}"
        raise InvalidSetting(f"{option} has no readable value.", got=got, allowed="a value as in YAML") from None


def with_key(option: str, settings: Mapping[str, Any], key: str, value: Any) -> Values:
    """Return a copy of settings in which a key, or KEY.INNER within a mapping, has a new value; raises InvalidSetting."""
    name, _, inner = key.partition(".")
    if not inner:
        return {**settings, name: value}
    within = settings.get(name, {})
    if not isinstance(within, Mapping):
        raise InvalidSetting(f"{option} names a key of a mapping.", got=f"{name}: {within!r}", allowed="a mapping there")
    return {**settings, name: with_key(option, within, inner, value)}


def with_wrapper(option: str, entries: Sequence[Mapping[str, Any]], key: str, value: Any) -> list[Values]:
    """Return a list of wrappers changed by an option.

    Args:
        option: The option, for errors.
        entries: Wrappers before.
        key: "" to replace the whole list, NAME to set several keys of a wrapper, NAME.KEY to set one.
        value: New value.

    Raises:
        InvalidSetting: The value does not fit the key.
    """
    name, _, inner = key.partition(".")
    if not name:
        if not isinstance(value, list):
            fix = f"{option}.NAME.KEY VALUE for a setting of one"
            raise InvalidSetting(f"{option} takes a list.", got=value, allowed="[{name: NAME, KEY: VALUE, ...}, ...]", fix=fix)
        return changed(entries, value)
    before = next((dict(each) for each in entries if each.get("name") == name), {"name": name})
    return changed(entries, [with_key(option, before, inner, value) if inner else {**before, **read_mapping(option, value)}])


def read_mapping(option: str, found: Any) -> Values:
    """Return the value of an option that sets several keys at once; raises InvalidSetting if it is no mapping."""
    if not isinstance(found, dict):
        fix = f"{option}.NAME VALUE for one of them"
        raise InvalidSetting(f"{option} takes a mapping.", got=found, allowed="{NAME: VALUE, ...}", fix=fix)
    return {str(key): value for key, value in found.items()}
