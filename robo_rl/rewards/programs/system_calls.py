"""Filter of system calls for the process that runs reward programs, made by the library libseccomp2."""

from __future__ import annotations

import functools
import sys
import tempfile

from robo_rl.errors import SandboxUnavailable

ALLOWED: tuple[str, ...] = ("read", "write", "exit", "exit_group")
ALLOWED += ("brk", "munmap", "mremap", "madvise", "futex", "restart_syscall", "rt_sigreturn", "rt_sigprocmask")
"""Allowed calls besides `mmap` of memory that cannot be executed: compute, wait for the parent, answer it, end."""
PROT_EXEC = 4  # asm-generic/mman-common.h
EPERM = 1
TELL = "or run programs without it, if you trust their authors: Limits(without_seccomp=True)"


@functools.cache
def filter_program() -> bytes:
    """Compile the filter of system calls for the kernel (struct sock_filter, 8 bytes each); refused calls fail with EPERM.

    Raises SandboxUnavailable without the library libseccomp2, or outside Linux.
    """
    if sys.platform != "linux":
        fix = f"use Linux, {TELL}"
        raise SandboxUnavailable("System calls can be filtered on Linux only.", got=sys.platform, fix=fix)
    try:
        import pyseccomp
    except (ImportError, RuntimeError, OSError) as error:
        fix = f"pip install pyseccomp, apt-get install libseccomp2, {TELL}"
        raise SandboxUnavailable("System calls cannot be filtered here.", got=error, fix=fix) from None
    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(EPERM))
    for name in ALLOWED:
        rules.add_rule(pyseccomp.ALLOW, name)
    rules.add_rule(pyseccomp.ALLOW, "mmap", pyseccomp.Arg(2, pyseccomp.MASKED_EQ, PROT_EXEC, 0))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
