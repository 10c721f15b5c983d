"""Find environments, learners, rewards, the models behind them, robots and formats by name, through package entry points.

So are the operations of `robo_rl`, such as `train`, which packages above it implement.

A third party adds one by declaring an entry point in its own package; nothing here is edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Literal

from robo_rl.errors import BrokenPlugin, InvalidSetting, MissingOperation, RoboRLError, UnknownName

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import AutoresetMode

Group = Literal[
    "environments",
    "learners",
    "networks",
    "encoders",
    "rewards",
    "raters",
    "image_text_models",
    "judges",
    "captioners",
    "robots",
    "formats",
    "operations",
]


def known(group: Group) -> dict[str, EntryPoint]:
    """Returns name -> entry point of a group, sorted by name; loads nothing."""
    return {point.name: point for point in sorted(entry_points(group=f"robo_rl.{group}"), key=lambda point: point.name)}


def load(group: Group, name: str, *, fix: str | None = None) -> Any:
    """Returns the object that an entry point names.

    Raises UnknownName with the close matches, BrokenPlugin if the package that declares it fails to load.
    """
    points = known(group)
    if name not in points:
        raise UnknownName(group.removesuffix("s").replace("_", "-"), name, points, fix=fix)
    return component(group, points[name])


def load_named(group: Group, setting: str, name: str) -> Any:
    """Return the object named by a setting: "package.module:Class" or an entry point.

    Raises UnknownName, BrokenPlugin, and InvalidSetting if the module lacks the name or cannot be imported.
    """
    module, colon, path = name.partition(":")
    if not colon:
        return load(group, name, fix="name a class without an entry point as package.module:Class")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # the code of a stranger
        names = ", ".join(known(group)) or "none is installed"
        raise InvalidSetting(
            f"{setting} cannot be imported.",
            got=f"{name!r}: {type(error).__name__}: {error}",
            allowed=f"package.module:Class, or an entry point of robo_rl.{group} ({names})",
            fix="look at the spelling, and whether the package is installed in this environment",
        ) from error
    return found


@contextmanager
def refused_if_it_fails(what: str, *, allowed: str, fix: str) -> Iterator[None]:
    """Raise InvalidSetting, with the line that failed, for any error of foreign code; errors of the workbench pass."""
    try:
        yield
    except RoboRLError:
        raise
    except Exception as error:
        place = [frame for frame in extract_tb(error.__traceback__) if "/torch/" not in frame.filename][-1]
        got = f"{type(error).__name__}: {error}, at {place.filename}:{place.lineno}"
        raise InvalidSetting(what, got=got, allowed=allowed, fix=fix) from error


def operation(name: str) -> Any:
    """Return the implementation of `robo_rl.<name>`; raises MissingOperation if its package is not installed."""
    points = known("operations")
    if name not in points:
        raise MissingOperation(name)
    return component("operations", points[name])


def component(group: Group, point: EntryPoint) -> Any:
    """Loads an entry point of a group; raises BrokenPlugin if it cannot be loaded."""
    with _named(group, point):
        return point.load()


@contextmanager
def _named(group: Group, point: EntryPoint) -> Iterator[None]:
    """Turns any error of a plug-in into BrokenPlugin, which names its package; errors of the workbench pass."""
    try:
        yield
    except RoboRLError:
        raise
    except (Exception, SystemExit) as error:
        raise BrokenPlugin(group, point.name, package_of(point), error) from error


def package_of(point: EntryPoint) -> str:
    """Returns the name of the package that declares an entry point."""
    return point.dist.name if point.dist is not None else point.module


def environment_names() -> dict[str, str | None]:
    """Returns every environment as "family/task" -> None, or the reason why its family cannot be used here."""
    names: dict[str, str | None] = {}
    for family in known("environments"):
        try:
            names |= dict.fromkeys(tasks_of(family))
        except RoboRLError as error:  # one family that cannot be used hides no other
            names[f"{family}/*"] = str(error)
    return names


def make_environment(name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """Returns a fresh environment from "family/task", from "family:address", or from the bare name of a family of one.

    Raises UnknownName with the close matches (of the family if that is known), MissingExtra if a package is not
    installed, BrokenPlugin if the family's package fails.
    """
    if (opened := _at_address(name, arguments)) is not None:
        return opened
    found, task = _find(name)
    environment: gymnasium.Env[Any, Any] = found.make(task, **arguments) if task else found(**arguments)
    return environment


def make_vector_environment(
    name: str,
    num_envs: int,
    *,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = "NextStep",
    **arguments: Any,
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Returns `num_envs` environments in one object that has an `environment_spec` and declares its autoreset mode.

    threads: of the simulation; None uses the available cores. Without effect if a family has no batched simulation: then
    single environments are stepped one after the other. Raises the errors of `make_environment`.
    """
    if not isinstance(num_envs, int) or num_envs < 1:
        raise InvalidSetting("num_envs is out of range.", got=num_envs, allowed="integer from 1")
    found, task = _find(name)
    if (batched := getattr(found, "make_vector", None)) is not None:
        environment: gymnasium.vector.VectorEnv[Any, Any, Any] | None
        environment = batched(task, num_envs, threads=threads, autoreset_mode=autoreset_mode, **arguments)
        if environment is not None:
            return environment
    from robo_rl.environments.vector import SequentialEnvironments  # imports gymnasium, which finding a name does not need

    return SequentialEnvironments(lambda: make_environment(name, **arguments), num_envs, autoreset_mode=autoreset_mode)


def _at_address(name: str, arguments: dict[str, Any]) -> gymnasium.Env[Any, Any] | None:
    """Returns the environment at an address, such as "robot:http://127.0.0.1:5000"; None if the name is none."""
    family, colon, address = name.partition(":")
    if not colon or family not in known("environments"):
        return None
    found = load("environments", family)
    if not hasattr(found, "at"):
        raise UnknownName("environment", name, _tasks(family, found), fix=f"environments of {family!r} have no addresses")
    environment: gymnasium.Env[Any, Any] = found.at(address, **arguments)
    return environment


def _find(name: str) -> tuple[Any, str]:
    """Returns the family of an entry point, and the name of the task: "" for a family of one."""
    family, _, task = name.partition("/")
    if family not in known("environments"):
        raise UnknownName("environment", name, [key for key, problem in environment_names().items() if problem is None])
    found = load("environments", family)
    if name not in (tasks := _tasks(family, found)):
        raise UnknownName("environment", name, tasks)
    return found, task


def tasks_of(family: str) -> list[str]:
    """Returns the names of a family's environments; raises MissingExtra, BrokenPlugin."""
    return _tasks(family, load("environments", family))


def _tasks(family: str, found: Any) -> list[str]:
    if isinstance(found, type):  # an environment class of its own, without siblings
        return [family]
    with _named("environments", known("environments")[family]):
        return [f"{family}/{task}" for task in found.names()]
