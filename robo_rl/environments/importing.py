"""Environments by the name of a class or function, "my_package.envs:MyEnv", or by an id of Gymnasium's registry."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from traceback import extract_tb
from typing import Any

import gymnasium

from robo_rl.code_names import importing, is_given, name_of_object, object_named, searching
from robo_rl.entry_points import known
from robo_rl.errors import EnvironmentFailed, InvalidSetting, RoboRLError, UnknownName, printable
from robo_rl.system.opengl import prefer_headless

Factory = Callable[..., gymnasium.Env[Any, Any]]
_VERSIONED = re.compile(r"(?:[\w.]+:)?(?:[\w.-]+/)?[\w.-]+-v\d+")
"""Id of Gymnasium with a version, optionally preceded by the module that registers it and a colon."""
REGISTRY = "gym:"
"""Prefix that marks an id of Gymnasium's registry, such as gym:CartPole-v1; it may be omitted."""
ATARI = "ale_py"
"""Module of the package ale-py, which registers Atari games when it is imported."""
_ATARI = re.compile(r"ALE/.*|\w+NoFrameskip-v[04]")
"""Ids of Atari games, as people type them."""
_PLAIN = (bool, int, float, str, type(None))


def is_code(name: str) -> bool:
    """Return True if the name is "module:Class" or an id of Gymnasium's registry; nothing is imported to find out."""
    return is_given(name) or ":" in name or name in gymnasium.registry or bool(_ATARI.fullmatch(name))


def made_by_code(name: str, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make an environment from the name of a class or function, or an id of Gymnasium's registry.

    Raises:
        InvalidSetting: The code makes no `gymnasium.Env`.
        EnvironmentFailed: The code raised an error.
        UnknownName: The id is not registered.
    """
    registered = name.removeprefix(REGISTRY)
    registered = f"{ATARI}:{registered}" if _ATARI.fullmatch(registered) else registered
    prefer_headless()  # the module may import MuJoCo, which reads the choice once
    with nullcontext() if is_given(name) else searching():
        if not is_given(name) and (name.startswith(REGISTRY) or _VERSIONED.fullmatch(registered)):
            _require_module(registered)
            with importing(registered):  # Gymnasium imports the module that precedes a colon
                made = _made(registered, gymnasium.make, {"id": registered, "disable_env_checker": True, **arguments})
        else:
            allowed = "PACKAGE.MODULE:CLASS, of a class or a function that returns an environment"
            made = _made(name, object_named(name, "environment", allowed=allowed), arguments)
    if not isinstance(made, gymnasium.Env):
        what, kind = f"{name} makes no environment.", type(made)
        fix = "rewrite one of the package gym for Gymnasium" if kind.__module__.partition(".")[0] == "gym" else None
        raise InvalidSetting(what, got=f"{kind.__module__}.{kind.__qualname__}", allowed="a gymnasium.Env", fix=fix)
    return made


def name_of(source: Factory | gymnasium.Env[Any, Any]) -> tuple[str, dict[str, Any]]:
    """Return a name and arguments from which `make_environment` makes the same environment.

    A class or function without an importable name is registered for this process only, and a warning says so. An instance that
    Gymnasium made is made again by its id. Any other instance is copied, in its present state, for each new environment.

    source: class, function or instance.

    Raises:
        InvalidSetting: The source makes no environment, or is an instance that cannot be copied.
    """
    if isinstance(source, gymnasium.Env):
        return _name_of_instance(source)
    arguments: dict[str, Any] = {}
    made_by: Factory = source
    if isinstance(source, functools.partial) and not source.args:
        arguments, made_by = dict(source.keywords), source.func
    if not callable(made_by):
        allowed = "a name, a class, a function that returns a new environment, or an environment"
        raise InvalidSetting("This makes no environment.", got=repr(made_by)[:200], allowed=allowed)
    return name_of_object(made_by), arguments


def portable_id(name: str) -> str:
    """Add to an id of Gymnasium's registry the module that registers it, which another process must import: "module:Id-v0".

    Other names, names of ours and ids of Gymnasium's own environments are returned unchanged.
    """
    if name.partition(":")[0].partition("/")[0] in known("environments"):
        return name
    spec = gymnasium.registry.get(name.removeprefix(REGISTRY))
    module = spec.entry_point.partition(".")[0].partition(":")[0] if spec and isinstance(spec.entry_point, str) else "gymnasium"
    return name if spec is None or module == "gymnasium" else f"{module}:{spec.id}"


def _name_of_instance(environment: gymnasium.Env[Any, Any]) -> tuple[str, dict[str, Any]]:
    if (spec := environment.spec) is not None and spec.id in gymnasium.registry:
        arguments = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
        if spec.max_episode_steps != gymnasium.registry[spec.id].max_episode_steps:
            arguments["max_episode_steps"] = spec.max_episode_steps
        if not spec.additional_wrappers and all(isinstance(value, _PLAIN) for value in arguments.values()):
            return portable_id(spec.id), arguments
    kind = type(environment)
    try:
        pristine = copy.deepcopy(environment)
    except Exception as error:  # the code of a stranger: windows, locks, memory of C
        raise InvalidSetting(
            f"This {kind.__name__} cannot be copied, and training, evaluations and films need environments of their own.",
            got=f"{type(error).__name__}: {printable(str(error))}",
            allowed="its class, or a function that returns a new one",
            fix=f"environment={kind.__name__}, or environment=lambda: {kind.__name__}(...)",
        ) from error

    def copied(**arguments: Any) -> gymnasium.Env[Any, Any]:
        if arguments.keys() - {"render_mode"}:
            raise InvalidSetting("An environment that was given as an instance takes no arguments.", got=arguments)
        return copy.deepcopy(pristine)

    copied.__module__ = kind.__module__
    return name_of_object(copied, f"<{kind.__qualname__} instance>"), {}


def _require_module(registered: str) -> None:
    """Raise EnvironmentFailed if the module that precedes the colon of an id is not installed."""
    module, colon, _ = registered.partition(":")
    if colon and find_spec(package := module.partition(".")[0]) is None:
        install = "pip install ale-py" if package == ATARI else "install the package that has it"
        raise EnvironmentFailed(
            f"{registered} needs a package that is not installed.",
            got=f"no module {package} in {os.getcwd()} or among the installed packages",
            fix=f"{install}, or look at the spelling",
        )


def _made(name: str, factory: Factory, arguments: Mapping[str, Any]) -> Any:
    try:
        return factory(**arguments)
    except RoboRLError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        raise EnvironmentFailed(f"{name} needs a package that is not installed.", got=printable(str(error))) from error
    except gymnasium.error.UnregisteredEnv as error:
        raise UnknownName("environment", name, gymnasium.registry, fix=_unregistered(name, error)) from error
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        given = ", ".join(
            f"{key}={value!r}" for key, value in arguments.items() if factory is not gymnasium.make or key != "id"
        )
        fix = f"look at {printable(place.filename)}, line {place.lineno}, and at its arguments ({given or 'none'})"
        if place.filename == __file__:  # the call itself failed
            fix = f"it was given {given or 'no arguments'}; --environment.arguments.KEY VALUE gives one"
        raise EnvironmentFailed(
            f"{name} cannot be made.",
            got=f"{type(error).__name__}: {printable(str(error))}",
            allowed=_parameters(factory) or None,
            fix=fix,
        ) from error


def _parameters(factory: Factory) -> str:
    """Return the arguments that a class or function takes, such as "mass, size=1.0"; "" if it does not say."""
    if factory is gymnasium.make:  # its own are not those of the environment
        return ""
    try:
        return ", ".join(map(str, inspect.signature(factory).parameters.values()))
    except (TypeError, ValueError):  # written in C
        return ""


def _unregistered(name: str, error: Exception) -> str:
    own = f"my_module:{name.rpartition(':')[2]}"
    return f'{printable(str(error))} An id that your own module registers is named with it: "{own}"'
