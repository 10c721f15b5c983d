"""Names for classes and functions: "package.module:Class", also for objects that exist only in this process.

While a module is imported, the current folder is searched first, as by `python -m`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName, printable

_GIVEN: dict[str, Any] = {}
"""Name -> object that was passed in this process."""
_importing: ContextVar[str] = ContextVar("importing", default="")


class NotImportable(UserWarning):
    """Warning that a class or function used by a run has no importable name, so that no other process can make it."""


def is_given(name: str) -> bool:
    """Return True if the name stands for an object that was passed as an argument in this process."""
    return name in _GIVEN


def name_of_object(source: Callable[..., Any], label: str = "") -> str:
    """Return a name for a class or function, from which `object_named` returns the same object.

    An object without an importable name is registered for this process only, and a warning says so.

    Args:
        source: Class, function or other callable.
        label: Name within its module; "" for its qualified name.
    """
    module, path = _module_of(source), label or str(getattr(source, "__qualname__", type(source).__qualname__))
    name = base = f"{module}:{path}"
    number = 1
    while "<" in path and _GIVEN.get(name, source) is not source:  # two lambdas of one place are two objects
        number += 1
        name = f"{base}-{number}"
    _GIVEN[name] = source
    if not _is_importable(source, module, path):
        warnings.warn(
            f"{name} has no name that can be imported: in another process `robo-rl resume`, `evaluate`, `play` and collectors "
            "cannot make it. Move it to the top of a module for these.",
            NotImportable,
            stacklevel=3,
        )
    return name


def object_named(name: str, setting: str, *, allowed: str, fix: str = "") -> Any:
    """Return the class or function with this name.

    Args:
        name: "package.module:Class", or a name that `name_of_object` returned in this process.
        setting: Noun for error messages, such as "environment" or "setting network.encoder".
        allowed: Description of valid names for error messages.
        fix: Remedy if the module cannot be found; "" for the list of searched folders.

    Raises:
        InvalidSetting: The module cannot be imported, or the object exists only in another process.
        UnknownName: The module does not have the name.
    """
    if name in _GIVEN:
        return _GIVEN[name]
    module, _, path = name.partition(":")
    here = sys.modules["__main__"] if module == "__main__" else None
    for part in path.split("."):
        here = getattr(here, part, None)
    if here is not None:  # in a notebook that was started again
        return here
    if "<" in path or module == "__main__":
        raise InvalidSetting(
            f"The {setting} {name} was defined in a notebook, a script or a function, and is known in that process alone.",
            got=name,
            allowed="PACKAGE.MODULE:CLASS, of a class or a function at the top of a module",
            fix="define it again in the notebook, or move it to a file such as mine.py and train again, or write its new name, "
            "mine:NAME, into recipe.yaml",
        )
    try:
        with searching(), importing(name):
            found: Any = import_module(module)
    except RoboRLError:
        raise
    except (Exception, SystemExit) as error:
        missing = (
            isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module}.".startswith(f"{error.name}.")
        )
        place = extract_tb(error.__traceback__)[-1]
        searched = f"look at the spelling; modules are searched in {os.getcwd()} and among the installed packages"
        raise InvalidSetting(
            f"The module of the {setting} {name} cannot be imported.",
            got=f"{type(error).__name__}: {printable(str(error))}",
            allowed=allowed,
            fix=(fix or searched) if missing else f"look at {printable(place.filename)}, line {place.lineno}",
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(found).items() if getattr(value, "__module__", None) == module]
            raise UnknownName(f"class or function of {module}", path, known)
        found = getattr(found, part)
    if not callable(found):
        raise InvalidSetting(f"{name} is no class and no function.", got=type(found).__name__, allowed=allowed)
    return found


def refuse_while_importing(what: str) -> None:
    """Raise InvalidSetting if a module is just being imported by its name.

    Such a module would call `robo_rl.<what>` when it is imported; it lacks `if __name__ == "__main__"`.
    """
    if name := _importing.get():
        raise InvalidSetting(
            f"Importing the module of {name} calls robo_rl.{what}.",
            allowed="a module that defines classes and functions",
            fix='put the call below: if __name__ == "__main__":',
        )


@contextmanager
def importing(name: str) -> Iterator[None]:
    """Within this context, `refuse_while_importing` blames the module of `name`; other threads are not affected."""
    before = _importing.set(name)
    try:
        yield
    finally:
        _importing.reset(before)


@contextmanager
def searching() -> Iterator[None]:
    """Within this context, search the current folder for modules first, as `python -m` does."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _module_of(source: Any) -> str:
    """Return the module of an object; for the script that was started, the name under which another process imports it."""
    module = str(getattr(source, "__module__", type(source).__module__))
    script = sys.modules["__main__"]
    if module != "__main__":
        return module
    if (spec := getattr(script, "__spec__", None)) is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(script, "__file__", None)
    return Path(file).stem if file and Path(file).resolve().parent == Path.cwd() else module


def _is_importable(source: Any, module: str, path: str) -> bool:
    """Return True if another process can import the object by its name."""
    if module == "__main__" or "<" in path:
        return False
    own = getattr(source, "__module__", module)
    found: Any = sys.modules.get(own)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is source
