"""Every error that robo_rl raises on purpose.

    RoboRLError
    ├── UnknownName          a component, recipe, run or key that does not exist
    ├── MissingExtra         an optional package is not installed
    ├── MissingOperation     the package behind a function of robo_rl is not installed
    ├── BrokenPlugin         a component of an installed package cannot be loaded
    ├── InvalidSetting       a recipe or constructor value of the wrong type or range
    ├── SpecError
    │   ├── SpecMismatch     two environments that must agree differ in unit, frame, action mode, rate, ...
    │   ├── InvalidObservation
    │   └── InvalidAction    wrong shape or not finite
    ├── InvalidEpisode       arrays of an episode contradict each other
    ├── NonFiniteUpdate      a learner's update produced NaN or infinity
    ├── ConformanceFailure   an implementation breaks a rule of its protocol; also an AssertionError
    ├── ExportDiffers        an exported policy acts otherwise than the policy
    ├── EnvironmentFailed    an environment raised another error, or returned no valid step
    ├── SimulationFailed     a simulator diverged repeatedly
    ├── RewardUnavailable    a reward model gave no usable answer for long
    ├── RenderingUnavailable no working OpenGL back end
    ├── ServerUnavailable    a simulator's server does not start, does not answer, or is of another version
    ├── ClusterError
    │   ├── ClusterUnavailable   a Ray cluster does not answer, rejects the token, or has other versions
    │   └── WorkerFailed     work on it failed otherwise, or cost worker after worker
    ├── JudgeError
    │   ├── JudgeUnavailable a model rejects the key, does not answer, or stopped answering
    │   │   └── QuestionNotAccepted the server rejects a question, which may be too long
    │   ├── JudgeChanged     a different model answers
    │   ├── BudgetReached    its answers have used up the budget
    │   │   └── OutOfReplies a pack of replies is at its end
    │   └── NotInLog         a replayed run has a question that the log does not answer
    ├── ProgramError
    │   ├── InvalidProgram   a reward program is rejected before it runs
    │   ├── ProgramFailed    it ran and was stopped, raised, or returned no valid reward
    │   └── SandboxUnavailable this machine cannot confine programs
    ├── RobotError
    │   ├── RobotUnavailable the robot, its server or its camera does not answer in time, or answers nonsense
    │   │   └── CameraFault  a camera is unplugged, or its process has ended
    │   │       ├── CameraStale   the newest picture is too old to act on
    │   │       ├── CameraFrozen  it repeats one picture or time stamp
    │   │       └── CameraChanged its pictures have another size, or another camera takes them
    │   ├── RobotBusy        another process holds the robot
    │   ├── TeleoperatorUnavailable a device that a person drives with is not there, was unplugged, or reports nonsense
    │   └── RobotStopped     its guard allows no motion until a person re-arms it
    ├── RunError
    │   ├── RunNotFound
    │   └── CheckpointCorrupt
    └── DatasetError
        ├── DatasetNotFound
        ├── DatasetBusy      another process writes it
        ├── DatabaseCorrupt  the catalogue, or a set of labels or preferences, is damaged or of another form
        └── EpisodeCorrupt   torn, changed, of another schema, or hostile

Each message has four parts: the problem, the value got, the values allowed, the next step.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Literal

LIKENESS = 0.6
"""Similarity of two names, from 0 to 1 for equal names, above which an error suggests one for the other; max_steps and
image_size are less similar than this."""


def printable(text: str, most: int = 1000) -> str:
    """Return foreign text safe to display: at most `most` characters, on one line, control characters escaped.

    A terminal would obey control characters from a server, a file's name or a program; a line break would imitate our output.
    """
    shown = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text[:most])
    return "".join(shown)


def printable_lines(text: str) -> str:
    """Return text of several lines with control characters escaped, except for line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" else printable(letter) for letter in text)


class RoboRLError(Exception):
    """Base of all errors of robo_rl, with one readable message of four parts: problem, value got, values allowed, remedy."""

    def __init__(self, what: str, *, got: object = None, allowed: object = None, fix: str | None = None) -> None:
        lines = [what]
        lines += [f"  got:     {got}"] if got is not None else []
        lines += [f"  allowed: {allowed}"] if allowed is not None else []
        lines += [f"  do:      {fix}"] if fix is not None else []
        super().__init__("\n".join(lines))


_FIXES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room on the disk: your quota is used up",
    errno.EFBIG: "make room: the file may not become larger",
    errno.ENOENT: "look whether the folder was moved, renamed or removed",
    errno.EROFS: "the file system is read-only: name a place elsewhere",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "look at its permissions, or name a place elsewhere"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "end programs that hold many files open, or allow more: ulimit -n"),
    errno.ENOMEM: "end other programs: memory is used up",
    errno.ESTALE: "try again; the file system of another machine has changed under this one",
}
_OF_THE_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO}
"""Errors that are the same at the next try: there is no such file, or it is none."""


def is_of_disk(error: OSError) -> bool:
    """Return True if an OSError concerns files: the disk is full, or a file is missing, read-only or not accessible."""
    return error.errno in {*_FIXES, errno.EIO}


def is_passing(error: BaseException) -> bool:
    """Return True if an error says nothing about the content of a file, so that the same file may be readable later.

    Examples are: no memory, no permission, a full or failing disk. Such a file must not be called damaged. For an OSError
    without a number, which comes from a library that rejects the file's format, the result is False.
    """
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno not in {None, *_OF_THE_FILE})


def fix_of(error: OSError | MemoryError) -> str:
    """Return the remedy, in words, for an error while a file was read or written."""
    if isinstance(error, MemoryError):
        return _FIXES[errno.ENOMEM]
    return _FIXES.get(error.errno or 0, "look at the disk, and at the permissions")


class UnknownName(RoboRLError):
    """A name that does not exist; the message lists similar names."""

    def __init__(self, kind: str, got: str, known: Iterable[str], *, fix: str | None = None, certain: str = "") -> None:
        """Compose the message.

        Args:
            kind: Kind of the name, such as "recipe".
            got: Unknown name.
            known: Existing names.
            fix: Further remedy, after the similar names.
            certain: Remedy that replaces similar names and `fix`, if it is known what was meant.
        """
        names = sorted(known)
        close = _close_to(got, names)
        shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
        suggestion = f"did you mean {' or '.join(repr(name) for name in close)}?" if close else None
        steps = "; ".join(step for step in (suggestion, fix) if step)
        super().__init__(f"Unknown {kind} {got!r}.", got=got, allowed=shown or "(none)", fix=certain or steps or None)
        self.close, self.known = close, names


def _close_to(got: str, names: Sequence[str]) -> list[str]:
    """Return the names that are like one, whatever their case, the likest first."""
    lowered = {name.lower(): name for name in reversed(names)}
    return [lowered[name] for name in difflib.get_close_matches(got.lower(), lowered, n=3, cutoff=LIKENESS)]


class MissingExtra(RoboRLError):
    """An optional package that the requested component needs is not installed."""

    def __init__(self, component: str, package: str, extra: str = "", *, of: str = "robo-rl", install: str = "") -> None:
        """Compose the message.

        Args:
            component: Component that needs the package.
            package: Import name of the package.
            extra: Extra that installs the package.
            of: Distribution of the extra.
            install: Command that installs a package which no extra can name.
        """
        self.problem = f"{component} needs the package {package!r}, which is not installed."
        self.fix = install or f'pip install "{of}[{extra}]"'
        super().__init__(self.problem, fix=self.fix)


@contextmanager
def optional(component: str, package: str, extra: str, *, of: str = "robo-rl") -> Iterator[None]:
    """Import an optional package inside this context.

    Raises:
        MissingExtra: The package `package` is not installed. Any other import error passes unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtra(component, package, extra, of=of) from None


class MissingOperation(RoboRLError):
    """No installed package implements a function of `robo_rl`."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"robo_rl.{name} is not installed.",
            got=f"no entry point {name!r} in the group robo_rl.operations",
            fix="pip install robo-rl; in a checkout scripts/setup, which also renews the entry points",
        )


class BrokenPlugin(RoboRLError):
    """A component that an installed package declares cannot be loaded, or raises while it lists its contents."""

    def __init__(self, group: str, name: str, package: str, error: BaseException) -> None:
        self.reason = f"{type(error).__name__}: {error}"
        super().__init__(
            f"The plug-in {name!r} of the package {package} does not work.",
            got=self.reason,
            allowed=f"an entry point of robo_rl.{group} that can be loaded",
            fix=f"mend or upgrade {package}, or do without it: pip uninstall {package}",
        )


class InvalidSetting(RoboRLError):
    """A setting has the wrong type or lies outside its range."""


def require_allowed(settings: object, allowed: Mapping[str, tuple[bool, str]], *, group: str = "") -> None:
    """Raise InvalidSetting for the first field of `settings` that is out of range.

    Args:
        settings: Object whose fields are checked.
        allowed: Field -> (True if its value is allowed, allowed values in words). A field may be nested, such as
            "replay.n_step".
        group: Name of the group that `settings` form within the settings of a learner; "" if they form none.
    """
    for name, (is_allowed, words) in allowed.items():
        if not is_allowed:
            key = f"{group}.{name}" if group else name
            raise InvalidSetting(f"Setting {key!r} is out of range.", got=attrgetter(name)(settings), allowed=words)


class SpecError(RoboRLError):
    """Base of the errors about observation, action and environment specs."""


class SpecMismatch(SpecError):
    """Two specs that must agree differ; the message lists each field that differs."""

    def __init__(self, what: str, differences: Sequence[str], *, fix: str | None = None) -> None:
        listing = "".join(f"\n    - {difference}" for difference in differences)
        super().__init__(
            f"{what}: {len(differences)} field(s) differ.{listing}",
            fix=fix or "use the environment of the checkpoint, or train again on this one",
        )
        self.differences = tuple(differences)


class InvalidObservation(SpecError):
    """An observation has missing or extra keys, a wrong shape or type, or non-finite values."""


class InvalidAction(SpecError):
    """An action has the wrong shape or holds NaN or infinity."""


class InvalidEpisode(RoboRLError):
    """The arrays of an episode contradict each other."""


class NonFiniteUpdate(RoboRLError):
    """A learner's update produced NaN or infinity; the parameters before it are kept."""


class ConformanceFailure(RoboRLError, AssertionError):
    """An implementation breaks a rule of its protocol; the message names the implementation and the rule."""

    def __init__(self, subject: str, rule: str, what: str, *, got: object = None, allowed: object = None) -> None:
        super().__init__(f"{subject} breaks the rule {rule!r}: {what}", got=got, allowed=allowed)
        self.subject, self.rule = subject, rule


class ExportDiffers(RoboRLError):
    """An exported policy returns other actions than the policy that it was made from."""


class EnvironmentFailed(RoboRLError):
    """An environment raised an error that is not a RoboRLError, or returned an invalid step."""


class SimulationFailed(RoboRLError):
    """A simulator diverged in too many episodes in a row."""


class RewardUnavailable(RoboRLError):
    """A reward model gave no usable answer for so long that further training would be pointless."""


class RenderingUnavailable(RoboRLError):
    """No OpenGL back end on this machine can render without a display."""


class ServerUnavailable(RoboRLError):
    """A simulator's server does not start, does not answer, or is of another version."""


class ClusterError(RoboRLError):
    """Base of the errors about clusters."""


class ClusterUnavailable(ClusterError):
    """A cluster does not answer, rejects the token, or has other versions."""


class WorkerFailed(ClusterError):
    """A job on a cluster raised an error, or was lost with several workers in a row."""


class JudgeError(RoboRLError):
    """Base of the errors about language and vision models that answer questions, such as judges of pictures.

    Answers so far are kept: repeat the same command to continue.
    """


class JudgeUnavailable(JudgeError):
    """The model that answers questions rejects the key, does not answer, or stopped answering."""


class JudgeChanged(JudgeError):
    """The server of a language model reports another model name than before."""


class QuestionNotAccepted(JudgeUnavailable):
    """The server of a language model rejects this question; it may be too long."""


class BudgetReached(JudgeError):
    """The answers of a language model have used up the budget that the user allowed."""


class OutOfReplies(BudgetReached):
    """A file of prepared replies, used in place of a language model, has no further reply."""


class NotInLog(JudgeError):
    """A question of a replayed run is not in the recorded log of a language model's answers."""


ProgramStatus = Literal[
    "no code", "several programs", "syntax", "signature", "forbidden", "too large", "unknown column", "frame"
]
FailureStatus = Literal["timeout", "memory", "killed", "raised", "shape", "not finite", "scale", "sum", "protocol"]


class ProgramError(RoboRLError):
    """Base of the errors about reward programs (reward functions as text); messages address the author of the program."""


class InvalidProgram(ProgramError):
    """A reward program is rejected before it runs; `status` names the reason."""

    def __init__(
        self, status: ProgramStatus, what: str, *, got: object = None, allowed: object = None, fix: str | None = None
    ) -> None:
        super().__init__(what, got=got, allowed=allowed, fix=fix)
        self.status = status


class ProgramFailed(ProgramError):
    """A reward program ran and was stopped, raised an error or returned an invalid reward; `status` names the reason."""

    def __init__(
        self, status: FailureStatus, what: str, *, got: object = None, allowed: object = None, fix: str | None = None
    ) -> None:
        super().__init__(what, got=got, allowed=allowed, fix=fix)
        self.status = status


class SandboxUnavailable(ProgramError):
    """This machine cannot run reward programs in a confined process as requested."""


class RobotError(RoboRLError):
    """Base of the errors about robots."""


class RobotUnavailable(RobotError):
    """The robot, its server or its camera does not answer in time, or answers nonsense."""


class CameraFault(RobotUnavailable):
    """A camera delivers no pictures: it is unplugged, or its process has ended."""


class CameraStale(CameraFault):
    """The newest picture of a camera is too old to act on. An old picture is never returned as a new one."""


class CameraFrozen(CameraFault):
    """A camera delivers the same picture or the same time stamp again and again."""


class CameraChanged(CameraFault):
    """The pictures of a camera have another size than before, or come from another camera; no picture is resized."""


class RobotBusy(RobotError):
    """Another process already holds the connection to the robot."""


class TeleoperatorUnavailable(RobotError):
    """A device that a person drives with cannot be opened, was unplugged, or reports nonsense."""


class RobotStopped(RobotError):
    """The guard allows no motion: the robot was never armed, or was stopped and a person has not yet re-armed it."""

    def __init__(self, mode: str, reason: str) -> None:
        super().__init__(
            "The robot may not move.",
            got=f"{mode}: {reason}" if reason else mode,
            allowed="armed or running",
            fix="look at the robot; then robo-rl robot rearm URL" if reason else "arm it first",
        )
        self.mode, self.reason = mode, reason


class RunError(RoboRLError):
    """Base of the errors about run folders."""


class RunNotFound(RunError):
    """The folder is not a run, or no run has that name."""


class CheckpointCorrupt(RunError):
    """A checkpoint of a run, a fitted reward or a world model is missing or damaged; the message says which."""


class DatasetError(RoboRLError):
    """Base of the errors about recorded episodes."""


class DatasetNotFound(DatasetError):
    """The folder is not a dataset, or holds no such episode."""


class DatasetBusy(DatasetError):
    """Another process is writing the dataset."""


class DatabaseCorrupt(DatasetError):
    """A database file is damaged or holds foreign tables. A full disk or a lock raises another error."""


class EpisodeCorrupt(DatasetError):
    """An episode's file is torn, was changed, has another schema, or holds foreign data."""
