"""Confinement of the process that runs reward programs: it drops its rights for good before it sees a program.

The order counts: limits and rights first, the filter of system calls last, since it refuses most calls that the others need.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
from pathlib import Path

NOBODY = 65534
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38  # linux/prctl.h
SECCOMP_MODE_FILTER = 2  # linux/seccomp.h


class Filter(ctypes.Structure):
    """Structure sock_fprog of linux/filter.h, by which a filter of system calls is passed to the kernel."""

    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def confine(memory: int, seconds: float, system_calls: bytes, is_needed: bool) -> list[str]:
    """Confine this process, and return the names of the guards that now hold.

    Args:
        memory: Further memory that it may use [bytes].
        seconds: Further CPU time that it may use [s].
        system_calls: Filter of system calls; empty for none.
        is_needed: True if the filter must hold.

    Raises:
        OSError: The kernel does not take the filter, and it is needed.
    """
    guards = ["limits"]
    is_linux = sys.platform == "linux"
    if is_linux and os.geteuid() == 0 and _drop_root():
        guards.append("nobody")
    _limit(memory, seconds)
    if is_linux:
        _call_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which would forget it
        _call_prctl(PR_SET_NO_NEW_PRIVS, 1)
        guards.append("no new rights")
    if system_calls:
        try:
            _call_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Filter(len(system_calls) // 8, system_calls)))
            guards.append("seccomp")
        except OSError:
            if is_needed:
                raise
    return guards


def _drop_root() -> bool:
    """Change from root to a user without rights; return False if a container does not allow that."""
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:
        return False
    return True


def _limit(memory: int, seconds: float) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = math.ceil(usage.ru_utime + usage.ru_stime + seconds)
    statistics = Path("/proc/self/statm")
    if statistics.exists():  # elsewhere kernels do not hold to RLIMIT_AS
        mapped = int(statistics.read_text().split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, mapped + memory)
    _lower(resource.RLIMIT_CPU, used, used + 1)
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE):
        _lower(kind, 0, 0)


def _lower(kind: int, soft: int, hard: int | None = None) -> None:
    wanted, (_, most) = soft if hard is None else hard, resource.getrlimit(kind)
    hard = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(kind, (min(soft, hard), hard))


def _call_prctl(option: int, value: int, structure: object = 0) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, structure, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")
