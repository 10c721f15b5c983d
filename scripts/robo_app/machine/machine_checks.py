"""Checks of `robo-rl doctor` on the machine: rendering, threads, accelerator, sandbox, disk."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from robo_app.machine.finding import Finding
from robo_app.machine.package_checks import IS_CHECKOUT
from robo_rl.errors import SandboxUnavailable
from robo_rl.rewards.programs.system_calls import filter_program
from robo_rl.system import opengl
from robo_rl.system.opengl import BACKENDS, INSTALL, OFF
from robo_sims.rendering import probe

CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
GIGABYTE = 1e9  # bytes


def rendering() -> Iterator[Finding]:
    """Check that frames can be rendered, with MUJOCO_GL if set; in separate processes, because a broken driver may crash."""
    if opengl.REQUESTED is not None:
        yield _as_requested(opengl.REQUESTED)
        return
    problems = []
    for backend in BACKENDS:
        problem = probe(backend)
        if problem is None:
            yield Finding("ok", f"draws frames without a display, with {backend}")
            return
        problems.append(f"{backend}: {problem}")
    yield Finding("problem", f"cannot draw frames without a display; {'; '.join(problems)}", f"sudo {INSTALL}")


def _as_requested(value: str) -> Finding:
    if value.lower().strip() in OFF:
        return Finding("warning", f"MUJOCO_GL={value} switches drawing off", "unset MUJOCO_GL")
    problem = probe(None)
    if problem is None:
        return Finding("ok", f"draws frames with MUJOCO_GL={value}")
    working = next((backend for backend in BACKENDS if probe(backend) is None), None)
    text = f"MUJOCO_GL={value} cannot draw frames: {problem}"
    return Finding("problem", text, f"sudo {INSTALL}" if working is None else f"unset MUJOCO_GL ({working} works)")


def threads() -> Iterator[Finding]:
    """Check that torch starts no more threads than this process may use; torch does not know the quota of a container."""
    import torch

    cores, started = usable_cores(), torch.get_num_threads()
    setting = os.environ.get("OMP_NUM_THREADS", "unset")
    text = f"torch uses {started} threads on {cores:g} usable cores, OMP_NUM_THREADS {setting}"
    if started > max(cores, 1):
        yield Finding("warning", f"{text}: threads wait for each other", f"export OMP_NUM_THREADS={max(int(cores), 1)}")
    else:
        yield Finding("ok", text)


def accelerator() -> Iterator[Finding]:
    """Report the device that torch uses, and whether it computes bfloat16 in hardware."""
    import torch

    if torch.cuda.is_available():
        bfloat16 = "with" if torch.cuda.is_bf16_supported(including_emulation=False) else "without"
        yield Finding("ok", f"torch {torch.__version__} on {torch.cuda.get_device_name()}, {bfloat16} bfloat16")
    elif torch.version.cuda is None and shutil.which("nvidia-smi"):
        text = f"torch {torch.__version__} computes on the CPU, but this machine has an NVIDIA driver"
        fix = 'ROBO_RL_TORCH="torch==2.13.0" scripts/setup' if IS_CHECKOUT else "pip install --force-reinstall torch"
        yield Finding("warning", text, fix)
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        bfloat16 = "with" if _cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"} else "without"
        yield Finding("ok", f"torch {torch.__version__} on the CPU ({capability}, {bfloat16} bfloat16)")


def sandbox() -> Iterator[Finding]:
    """Check that the sandbox of reward programs works."""
    try:
        filter_program()
        yield Finding("ok", "reward programs run in a sandbox with seccomp")
    except SandboxUnavailable as error:
        fix = "sudo apt-get install -y libseccomp2; pip install pyseccomp"
        yield Finding("warning", f"reward programs do not run here: {' '.join(str(error).split())}", fix)


def disk(out: Path) -> Iterator[Finding]:
    """Check that the disk of the folder `out` has room for checkpoints and videos."""
    folder = _existing(out)
    free = shutil.disk_usage(folder).free / GIGABYTE
    fix = "remove old run folders, or choose another disk with --out"
    if free < 1:
        yield Finding("problem", f"{free:.1f} GB free at {folder}", fix)
    elif free < 10:
        yield Finding("warning", f"{free:.1f} GB free at {folder}; a run with images can fill it", fix)
    else:
        yield Finding("ok", f"{free:.0f} GB free at {folder}")


def durable_writes(out: Path) -> Iterator[Finding]:
    """Check that the runs folder supports checkpoints: write aside, fsync, rename the folder, fsync its parent."""
    folder = _existing(out)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".robo-rl-doctor-") as scratch:
            _write_and_rename(Path(scratch))
        yield Finding("ok", f"checkpoints can be written to {folder}")
    except OSError as error:
        fix = "mkdir -p ~/runs && robo-rl doctor --out ~/runs"
        yield Finding("problem", f"checkpoints cannot be written to {folder}: {error}", fix)


def _write_and_rename(scratch: Path) -> None:
    (scratch / "aside").mkdir()
    with (scratch / "aside" / "file").open("wb") as file:
        file.write(b"checkpoint")
        os.fsync(file.fileno())
    (scratch / "aside").rename(scratch / "final")
    handle = os.open(scratch, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def usable_cores() -> float:
    """Return the number of cores available to this process: its affinity, cut by the container's quota (cgroup 2)."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    limit, period = CPU_QUOTA.read_text().split() if CPU_QUOTA.exists() else ("max", "1")
    return cores if limit == "max" else min(cores, int(limit) / int(period))


def _cpu_flags() -> set[str]:
    listing = Path("/proc/cpuinfo")
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", listing.read_text(), re.MULTILINE) if listing.exists() else None
    return set(found[1].split()) if found else set()


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())
