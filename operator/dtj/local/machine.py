"""What this machine has, and how a job's processes share it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtj.api.spec import JobSpec, Role, Strategy
from dtj.core.replicas import Replica, deciding_replica, replicas, training_replicas

MIB: Final = 2**20

_TRAINING_MIB: Final = 700
_SERVING_MIB: Final = 400
"""What a process of the shipped trainer needs: 593 and 378 MiB resident were measured, with a small model.

The servers of a ParameterServer job, its workers among them, run the chief's steps and load less of TensorFlow; so do
the workers of a Pipeline but the one that drives.
"""

_THREADS: Final = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Memory:
    """In bytes: what a job needs at least, and what is available to it."""

    needed: int
    available: int


def memory(spec: JobSpec, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """An estimate for a job of the shipped trainer; None where the machine does not tell what it has."""
    needed = sum(_SERVING_MIB if _only_serves(spec, replica) else _TRAINING_MIB for replica in replicas(spec))
    available = [*_machine_memory(proc), *_cgroup_memory(proc, cgroups)]
    return Memory(needed=needed * MIB, available=min(available)) if available else None


def _only_serves(spec: JobSpec, replica: Replica) -> bool:
    if spec.strategy is Strategy.PIPELINE:
        return replica.role is Role.WORKER and replica != deciding_replica(spec)
    return spec.strategy is Strategy.PARAMETER_SERVER and replica.role in (Role.PS, Role.WORKER)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_defaults(spec: JobSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that share the cores among the replicas that compute.

    Else each would start a thread a core, and they would fight: two workers on two cores train a third slower.
    Nothing, where the user has set one of them.
    """
    if any(name in environ for name in _THREADS):
        return {}
    threads = max(1, cores() // max(1, len(training_replicas(spec))))
    return dict.fromkeys(_THREADS, str(threads))


def _machine_memory(proc: Path) -> Iterator[int]:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            yield int(amount.split()[0]) * 1024


def _cgroup_memory(proc: Path, cgroups: Path) -> Iterator[int]:
    """What each control group (version 2) that we are in leaves us: the smallest counts, whichever level it is on.

    A container sees its own group as the root, so a path that is not there stands for that.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except FileNotFoundError:
        return
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    for level in (cgroups / own, *(cgroups / own).parents):
        allowed, taken = _number(level / "memory.max"), _number(level / "memory.current")
        if allowed is not None and taken is not None:
            yield max(0, allowed - taken + _reclaimable(level))


def _reclaimable(group: Path) -> int:
    """File pages that count as used, and that the kernel drops when memory is asked for."""
    try:
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (FileNotFoundError, ValueError):
        return 0
    return int(fields.get("inactive_file", "0"))


def _number(file: Path) -> int | None:
    try:
        content = file.read_text().strip()
    except OSError:
        return None
    return int(content) if content.isdecimal() else None
