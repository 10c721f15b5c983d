"""Environments by names of code: "my_package.envs:MyEnv", a class or a function, and the ids of Gymnasium's registry.

The folder of the command is searched for the module, as `python -m` does, while it is imported and the environment is made.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

import gymnasium

from robo_rl.errors import EnvironmentFailed, InvalidSetting, RoboRLError, UnknownName, printable

Factory = Callable[..., gymnasium.Env[Any, Any]]
_VERSIONED = re.compile(r"(?:[\w.]+:)?(?:[\w.-]+/)?[\w.-]+-v\d+")
"""An id of Gymnasium with its version, with the module that registers it before a colon."""
_GIVEN: dict[str, Factory] = {}
"""Classes and functions that were given as objects in this process, by their names."""
_importing: list[str] = []


class NotImportable(UserWarning):
    """A run's environment that no other process can make."""


def is_code(name: str) -> bool:
    """Return whether a name is one of code, or of Gymnasium's registry; nothing is imported."""
    return name in _GIVEN or ":" in name or name in gymnasium.registry


def made_by_code(name: str, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return a new environment of a class, a function or an id of Gymnasium; raises InvalidSetting, EnvironmentFailed."""
    with _searching() if name not in _GIVEN else nullcontext():
        if name not in _GIVEN and _VERSIONED.fullmatch(name):
            made = _made(name, gymnasium.make, {"id": name, "disable_env_checker": True, **arguments})
        else:
            made = _made(name, _GIVEN.get(name) or _imported(name), arguments)
    if not isinstance(made, gymnasium.Env):
        what, kind = f"{name} makes no environment.", type(made)
        fix = "rewrite one of the package gym for Gymnasium" if kind.__module__.partition(".")[0] == "gym" else None
        raise InvalidSetting(what, got=f"{kind.__module__}.{kind.__qualname__}", allowed="a gymnasium.Env", fix=fix)
    return made


def name_of(factory: Factory) -> tuple[str, dict[str, Any]]:
    """Return the name by which `make_environment` makes the environment of a class or function, and its arguments.

    One without an importable name is kept for this process alone, which a warning says. Raises InvalidSetting for an
    environment itself, of which there is only one.
    """
    if isinstance(factory, gymnasium.Env):
        raise InvalidSetting(
            "An environment is made anew for training, evaluations and films.",
            got=f"one {type(factory).__name__}",
            allowed="its class, or a function that returns a new one",
            fix=f"environment={type(factory).__name__}, or a function with its arguments",
        )
    arguments = dict(factory.keywords) if isinstance(factory, functools.partial) and not factory.args else {}
    source = factory.func if isinstance(factory, functools.partial) and not factory.args else factory
    if not callable(source):
        allowed = "a name, a class, or a function that returns a new environment"
        raise InvalidSetting("This makes no environment.", got=repr(source)[:200], allowed=allowed)
    module, path = _module_of(source), str(getattr(source, "__qualname__", type(source).__qualname__))
    name = f"{module}:{path}"
    _GIVEN[name] = source
    if not _is_found(source, module, path):
        warnings.warn(
            f"{name} has no name that can be imported: in another process `robo-rl resume`, `evaluate`, `play` and collectors "
            "cannot make it. Move it to the top of a module for these.",
            NotImportable,
            stacklevel=2,
        )
    return name, arguments


def refuse_while_importing(what: str) -> None:
    """Raise InvalidSetting if the module of an environment is being imported, which would train in the middle of a command."""
    if _importing:
        raise InvalidSetting(
            f"Importing the module of {_importing[-1]} calls robo_rl.{what}.",
            allowed="a module that defines the environment",
            fix='put the call below: if __name__ == "__main__":',
        )


@contextmanager
def _searching() -> Iterator[None]:
    """Search the present folder for modules, first, as python does."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _imported(name: str) -> Factory:
    module, _, path = name.partition(":")
    if "<" in path:
        raise InvalidSetting(
            f"The environment {name} was a function without a name, known in the process alone that trained in it.",
            got=name,
            allowed="PACKAGE.MODULE:CLASS, of a class or a function at the top of a module",
            fix="move it there and train again, or write its new name into environment.name of the run's recipe.yaml",
        )
    _importing.append(name)
    try:
        found: Any = import_module(module)
    except RoboRLError:
        raise
    except (Exception, SystemExit) as error:
        missing = (
            isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module}.".startswith(f"{error.name}.")
        )
        place = extract_tb(error.__traceback__)[-1]
        raise InvalidSetting(
            f"The module of the environment {name} cannot be imported.",
            got=f"{type(error).__name__}: {printable(str(error))}",
            allowed="PACKAGE.MODULE:CLASS, of a class or a function that returns an environment",
            fix=f"look at the spelling; modules are searched in {os.getcwd()} and among the installed packages"
            if missing
            else f"look at {printable(place.filename)}, line {place.lineno}",
        ) from error
    finally:
        _importing.pop()
    for part in path.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(found).items() if getattr(value, "__module__", None) == module]
            raise UnknownName(f"class or function of {module}", path, known)
        found = getattr(found, part)
    if not callable(found):
        raise InvalidSetting(
            f"{name} is no class and no function.", got=type(found).__name__, allowed="one that makes a gymnasium.Env"
        )
    factory: Factory = found
    return factory


def _made(name: str, factory: Factory, arguments: Mapping[str, Any]) -> Any:
    try:
        return factory(**arguments)
    except RoboRLError:
        raise
    except gymnasium.error.DependencyNotInstalled as error:
        raise EnvironmentFailed(f"{name} needs a package that is not installed.", got=printable(str(error))) from error
    except gymnasium.error.UnregisteredEnv as error:
        raise UnknownName("environment", name, gymnasium.registry, fix=printable(str(error))) from error
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        given = ", ".join(
            f"{key}={value!r}" for key, value in arguments.items() if factory is not gymnasium.make or key != "id"
        )
        raise EnvironmentFailed(
            f"{name} cannot be made.",
            got=f"{type(error).__name__}: {printable(str(error))}",
            fix=f"look at {printable(place.filename)}, line {place.lineno}, and at its arguments ({given or 'none'})",
        ) from error


def _module_of(source: Any) -> str:
    """Return the module of an object; for the script that was started the name by which another process imports it."""
    module = str(getattr(source, "__module__", type(source).__module__))
    script = sys.modules["__main__"]
    if module != "__main__":
        return module
    if (spec := getattr(script, "__spec__", None)) is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(script, "__file__", None)
    return Path(file).stem if file and Path(file).resolve().parent == Path.cwd() else module


def _is_found(source: Any, module: str, path: str) -> bool:
    """Return whether another process finds the object by its name."""
    if module == "__main__" or "<" in path:
        return False
    own = getattr(source, "__module__", module)
    found: Any = sys.modules.get(own)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is source
