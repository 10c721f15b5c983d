"""The command `robo-rl`: choose a command, show errors as sentences."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from types import TracebackType
from typing import Any

import tyro

from robo_app.arguments.options import described, read_options
from robo_app.jobs.exit_status import status_of
from robo_app.jobs.interruption import loud_exit
from robo_cli.plain_output import use_plain_output
from robo_rl.errors import RoboRLError, UnknownName, fix_of, is_of_disk

GROUPS: dict[str, dict[str, tuple[str | None, str]]] = {
    "train": {
        "train": (None, "train a recipe, evaluate the policy, write a report"),
        "resume": ("Resume", "go on with an interrupted run"),
        "refine": ("Refine", "go on learning on a robot with what a run learnt in the simulation"),
        "evaluate": ("Evaluate", "evaluate a run's policy, with intervals"),
        "watch": ("Watch", "watch trainings in the browser: state, films, curves, interventions, errors"),
        "play": ("Play", "watch a run's policy: MuJoCo's window, the browser, or a film"),
        "export": ("ExportOrder", "write a run's policy as ONNX, TorchScript or weights that act without robo-rl"),
        "fit-encoder": ("FitEncoder", "fit a frozen encoder of pictures to objects and goals of a simulator"),
        "choose": ("Choose", "choose a method by six questions, with the commands to run"),
        "learners": ("Learners", "list learners, or tell which can be trained with a person, recorded data, pictures"),
        "papers": ("Papers", "list papers: what each brings, its recipes, page and study"),
        "recipes": ("Recipes", "list recipes, or print one to start your own from"),
        "envs": ("Envs", "list environments, or describe one with units and frames"),
    },
    "data": {
        "record": ("Record", "record episodes into a dataset that survives any crash"),
        "data": (None, "look at, check, mend, merge, filter, split and convert datasets"),
        "push": ("Push", "send a run or a dataset to a folder, an object store or the Hugging Face hub"),
        "pull": ("Pull", "fetch a run or a dataset, every file compared with its digest"),
        "label": ("Label", "label a dataset with rewards of a model, resumable, beside the recorded ones"),
    },
    "rewards": {
        "reward": (None, "list reward models, show their settings, learn one from data"),
        "audit": ("AuditOrder", "say whether to trust a reward: agreement with what was recorded, spoilt clips, verdict"),
        "prefer": ("Prefer", "have pairs of segments compared, for a reward to be learned from"),
    },
    "robots": {
        "robot": (None, "serve a robot, simulated or real, behind its guard; check, stop and re-arm it"),
        "console": ("Console", "watch a robot in the browser, take over, stop it, label and record episodes"),
        "demo": (None, "a person, or a simulated one, teaches a simulated robot: twin, learner and page in one command"),
        "carla-server": ("CarlaServer", "serve a light stand-in for CARLA to any carla script"),
        "drive": (None, "write a run's policy as an agent of the CARLA leaderboard"),
    },
    "experiments": {
        "compare": ("Compare", "compare runs in pairs on shared seeds"),
        "report": ("Report", "write one HTML page about one or several runs"),
        "experiment": ("ExperimentOrder", "methods on datasets or tasks, several seeds, resumable, with a table and claims"),
        "published": ("PublishedOrder", "an experiment beside scores that others published: table and curves"),
        "evidence": ("EvidenceOrder", "list methods by evidence, with counts: proven, validated, experimental"),
        "sweep": (None, "search the settings of a recipe, several seeds for each, resumable, with a report"),
        "bench": (None, "measure speed beside Gymnasium, EnvPool, SB3 and SBX, in one run"),
    },
    "machine": {
        "doctor": ("Doctor", "check this machine: versions, rendering, threads, disk"),
    },
}
"""Group -> command -> class of its options, None if its module reads them itself, and its text."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
ROOMS = {name: group for group, commands in GROUPS.items() for name in commands}
"""Name of a command -> Python package in which its module lies."""
START = """start with:
  robo-rl doctor
  robo-rl train arm-pick-rlpd
  robo-rl evaluate latest --episodes 200
  robo-rl choose"""
MORE = """settings of environments, rewards, models, robots and recipes, in every command:
  --GROUP.KEY VALUE               --environment.arguments.action_repeat 3   --reward.settings.folder rewards/pick
  the value as in YAML            --environment.arguments.cameras [front,wrist]
  several keys at once            --environment.arguments '{action_repeat: 3, cameras: [front]}'

`robo-rl COMMAND --help` shows examples, `robo-rl --version` the version."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 an error with a remedy, 2 wrong usage, 3 diverged, 130 interrupted."""
    use_plain_output()
    sys.excepthook = _print_traceback
    warnings.formatwarning = _one_line
    try:
        status = dispatch(sys.argv[1:])
        sys.stdout.flush()  # here, so that a closed pipe is noticed
        sys.exit(status)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (RoboRLError, OSError) as error:
        remedy = f"\n  do:      {fix_of(error)}" if isinstance(error, OSError) and is_of_disk(error) else ""
        print(f"error: {error}{remedy}", file=sys.stderr)
        sys.exit(status_of(error))
    except MemoryError:
        print(f"error: The memory is used up.\n  do:      {fix_of(MemoryError())}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


def _one_line(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """Return a warning as a line of text: where in the code it was raised helps nobody at a command line."""
    return (
        f"warning: {message}\n"
        if issubclass(category, UserWarning)
        else f"{filename}:{lineno}: {category.__name__}: {message}\n"
    )


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unforeseen error like all other output, without the colours of Python, which escaping would garble."""
    sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))


def dispatch(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        groups = (f"{title}:\n{_rows(commands)}" for title, commands in GROUPS.items())
        print("\n\n".join(["usage: robo-rl COMMAND ...", *groups, START, MORE]))
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"robo-rl {version('robo-rl')}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        return _run_of_papers(name, rest)
    module: Any = importlib.import_module(f"robo_cli.{ROOMS[name]}.{name.replace('-', '_')}")
    options, text = COMMANDS[name]
    if options is None:
        return int(module.main(rest))
    description = described(f"{text[0].upper()}{text[1:]}.", module.EXAMPLES)
    prog, flags = f"robo-rl {name}", (tyro.conf.FlagCreatePairsOff,)
    order = read_options(getattr(module, options), rest, prog=prog, description=description, config=flags)
    with loud_exit("look at what the environment calls: nothing after it was done"):
        return int(module.run(order))


def _run_of_papers(name: str, arguments: list[str]) -> int:
    """Run a command that papers alone bring, such as `robo-rl world fit`; raises UnknownName if none does."""
    from robo_cli.actions import actions_of_papers, run_action

    actions = actions_of_papers(name)
    if not actions:
        raise UnknownName("command", name, COMMANDS)
    return run_action(name, {**actions}, "\n".join(action.examples for action in actions.values()), arguments)


def _rows(commands: Mapping[str, tuple[str | None, str]]) -> str:
    return "\n".join(f"  {name:12} {text}" for name, (_, text) in commands.items())


if __name__ == "__main__":
    main()
