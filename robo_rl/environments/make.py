"""Make environments by name: "family/task", "family:address" of a robot, "module:Class", or an id of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from robo_rl.entry_points import known, load, plugin_errors
from robo_rl.environments.wrapping import EnvironmentWrapper, listed, read_wrappers, wrapped
from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import AutoresetMode


GYMNASIUM = "gymnasium"
"""Family that has some of Gymnasium's own tasks, with units."""
OWN = (
    "one of your own is package.module:Class, or my_module:MyEnv-v0 if the module registers that id "
    "(docs/simulators/own-environments.md)"
)
"""Remedy in error messages for an unknown name of an environment."""


def environment_names(families: Iterable[str] | None = None) -> dict[str, str | None]:
    """Return "family/task" -> None for each environment, and "family/*" -> reason for a family that cannot be used here.

    families: names of families; None for all. Each one lists its tasks, which imports its simulator.
    """
    names: dict[str, str | None] = {}
    for family in known("environments") if families is None else families:
        try:
            names |= dict.fromkeys(tasks_of(family))
        except RoboRLError as error:  # one family that cannot be used hides no other
            names[f"{family}/*"] = str(error)
    return names


def make_environment(
    name: str | gymnasium.Env[Any, Any] | Callable[..., gymnasium.Env[Any, Any]],
    *,
    wrappers: Iterable[Mapping[str, Any]] = (),
    **arguments: Any,
) -> gymnasium.Env[Any, Any]:
    """Return a fresh environment, with an `environment_spec`.

    Args:
        name: "family/task", "family:address", or the name of a family with one environment. Other environments are named by
            "package.module:Class" (or a function there, or the class itself), or an id of Gymnasium's registry, such as
            "CartPole-v1" or "package:MyEnv-v0" (docs/simulators/own-environments.md).
        wrappers: [{"name": "frame_stack", "count": 3}, ...], the innermost first (docs/simulators/wrappers.md).
        arguments: Arguments of the environment.

    Raises:
        UnknownName: No such environment; the message lists similar names.
        MissingExtra: A package is not installed.
        BrokenPlugin: The package of the family fails.
    """
    if not isinstance(name, str):
        from robo_rl.environments.importing import name_of

        name, own = name_of(name)
        arguments = {**own, **arguments}
    return wrapped(_made(name, arguments), wrappers)


def _made(name: str, arguments: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    if (opened := _at_address(name, arguments)) is not None:
        return opened
    if (foreign := _of_code(name, arguments)) is not None:
        return foreign
    found, task = _find(name)
    environment: gymnasium.Env[Any, Any] = found.make(task, **arguments) if task else found(**arguments)
    return environment


def make_vector_environment(
    name: str,
    num_envs: int,
    *,
    threads: int | None = None,
    autoreset_mode: AutoresetMode | str = "NextStep",
    wrappers: Iterable[Mapping[str, Any]] = (),
    **arguments: Any,
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Return a vector environment of `num_envs` environments, with an `environment_spec` and a declared autoreset mode.

    Args:
        name: Name as in `make_environment`.
        num_envs: Number of environments.
        threads: Threads of a batched simulation; None for the available cores. No effect if the family has no batched
            simulation: then single environments are stepped one by one.
        autoreset_mode: Autoreset mode of Gymnasium.
        wrappers: As in `make_environment`.
        arguments: Arguments of the environments.

    Raises the errors of `make_environment`.
    """
    if not isinstance(num_envs, int) or num_envs < 1:
        raise InvalidSetting("num_envs is out of range.", got=num_envs, allowed="integer from 1")
    around = read_wrappers(entries := listed(wrappers))
    if all(wrapper.is_batched for wrapper in around) and not _is_code(name):
        options = {"threads": threads, "autoreset_mode": autoreset_mode, **arguments}
        if (environments := _batched(name, num_envs, options)) is not None:
            return _around(environments, around)
    from robo_rl.environments.vector import SequentialEnvironments  # imports gymnasium, which finding a name does not need

    def make() -> gymnasium.Env[Any, Any]:
        return make_environment(name, wrappers=entries, **arguments)

    return SequentialEnvironments(make, num_envs, autoreset_mode=autoreset_mode)


def _batched(name: str, num_envs: int, options: dict[str, Any]) -> gymnasium.vector.VectorEnv[Any, Any, Any] | None:
    """Return a batched simulation, or None if the family has none."""
    if _is_address(name):
        family, _, task = name.partition(":")
        make_vector = getattr(load("environments", family), "make_vector_at", None)
    else:
        found, task = _find(name)
        make_vector = getattr(found, "make_vector", None)
    environments: gymnasium.vector.VectorEnv[Any, Any, Any] | None
    environments = None if make_vector is None else make_vector(task, num_envs, **options)
    return environments


def _around(
    environments: gymnasium.vector.VectorEnv[Any, Any, Any], around: Iterable[EnvironmentWrapper]
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Return a vector environment in wrappers; closes it if a wrapper is refused."""
    try:
        for wrapper in around:
            environments = wrapper.wrap_vector(environments)
    except RoboRLError:
        environments.close()
        raise
    return environments


def _is_code(name: str) -> bool:
    """Return True if the name is none of ours, but one of code or of Gymnasium's registry."""
    if name.partition(":")[0].partition("/")[0] in known("environments"):
        return False
    from robo_rl.environments.importing import is_code  # imports gymnasium, which finding a name does not need

    return is_code(name)


def _of_code(name: str, arguments: dict[str, Any]) -> gymnasium.Env[Any, Any] | None:
    """Return the environment of a class, a function, or an id of Gymnasium; None if the name is none of these."""
    if not _is_code(name):
        return None
    from robo_rl.environments.foreign import with_spec
    from robo_rl.environments.importing import made_by_code

    environment = made_by_code(name, arguments)
    ours = f"{GYMNASIUM}/{name}"
    try:
        return with_spec(environment, name, better=ours if ours in tasks_of(GYMNASIUM) else "")
    except RoboRLError:
        environment.close()
        raise


def _is_address(name: str) -> bool:
    family, colon, _ = name.partition(":")
    return bool(colon) and family in known("environments")


def _at_address(name: str, arguments: dict[str, Any]) -> gymnasium.Env[Any, Any] | None:
    """Return the environment at an address, such as "robot:http://127.0.0.1:5000"; None if the name is no address."""
    if not _is_address(name):
        return None
    family, _, address = name.partition(":")
    found = load("environments", family)
    if not hasattr(found, "at"):
        raise UnknownName("environment", name, _tasks(family, found), fix=f"environments of {family!r} have no addresses")
    environment: gymnasium.Env[Any, Any] = found.at(address, **arguments)
    return environment


def _find(name: str) -> tuple[Any, str]:
    """Return the family of an environment, and the name of its task: "" for a family with one environment."""
    family, _, task = name.partition("/")
    if family not in known("environments"):
        raise UnknownName("environment", name, _names_like(name), fix=OWN)
    found = load("environments", family)
    if name not in (tasks := _tasks(family, found)):
        raise UnknownName("environment", name, tasks)
    return found, task


def _names_like(name: str) -> list[str]:
    """Return all names of ours, and ids of Gymnasium that are similar to the name."""
    from difflib import get_close_matches

    from gymnasium import registry

    return [*(key for key, problem in environment_names().items() if problem is None), *get_close_matches(name, registry)]


def tasks_of(family: str) -> list[str]:
    """Return the names of a family's environments; raises MissingExtra, BrokenPlugin."""
    return _tasks(family, load("environments", family))


def _tasks(family: str, found: Any) -> list[str]:
    if isinstance(found, type):  # an environment class of its own, without siblings
        return [family]
    with plugin_errors("environments", known("environments")[family]):
        return [f"{family}/{task}" for task in found.names()]
