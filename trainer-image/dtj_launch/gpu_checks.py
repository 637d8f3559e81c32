"""What a task with GPUs needs, looked at before it waits for its peers: one line with the remedy each.

TensorFlow itself names no library that is missing, and then trains on the CPU. A task without GPUs pays nothing.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Tuple  # noqa: UP035  # evaluated, by any Python that a foreign image may have

from . import devices
from .communication import RING, STRATEGIES
from .errors import LauncherError, Unavailable, UsageError

log = logging.getLogger(__name__)

_PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_probe.py")
_PROBE_SECONDS = 120.0
_ENOUGH_SHARED_MEMORY = 128 << 20
"""Bytes; a container has 64 MiB."""
MOUNTED_DRIVER = "/usr/local/nvidia/lib64"
"""Where GKE mounts the driver; it leaves the loader's cache of the image as it is (container-engine-accelerators)."""
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)[a-z]?")
_PTX_FAILS = 12
"""From this major number on, PTX of an older one ends with CUDA_ERROR_INVALID_PTX (tensorflow#89272, #101746)."""
_CLUSTER = "KUBERNETES_SERVICE_HOST"
"""Where this is not set, as on a laptop, nobody has asked for the GPUs that are there."""


@dataclass(frozen=True)
class Surroundings:
    """What was found."""

    build: Mapping[str, Any] | None
    """Of TensorFlow; None where this Python has none."""
    libraries: Mapping[str, str | None]
    """Name -> why it cannot be loaded."""
    driver: Mapping[str, Any]
    shared_memory: int = _ENOUGH_SHARED_MEMORY
    """Size of /dev/shm, in bytes."""
    tensorflow: str = ""
    """Its version."""


@dataclass
class Verdict:
    """What ends the task, and what is only said."""

    error: LauncherError | None = None
    warnings: list[str] = field(default_factory=list)


def check(environ: Mapping[str, str], communication: str) -> None:
    """Looks, if this task has GPUs; says what may go wrong.

    Args:
        communication: how gradients are to be sent, one of `communication.WAYS`.

    Raises:
        UsageError: this image and these GPUs do not fit together.
        Unavailable: the node's GPUs cannot be used; on another node, or later, they may be.
    """
    if not devices.visible(environ):
        return
    try:
        said = subprocess.run([sys.executable, _PROBE], capture_output=True, timeout=_PROBE_SECONDS, text=True)
        found = json.loads(said.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning(
            f"GPU: not checked ({type(error).__name__}); if the program fails, begin with nvidia-smi on the node"
        )
        return
    announced = devices.found(environ, communication)
    verdict = judge(
        Surroundings(**found, shared_memory=_shared_memory(), tensorflow=announced.tensorflow or "of this image"),
        environ,
    )
    if verdict.error is not None:
        if _CLUSTER in environ:
            raise verdict.error
        log.warning(str(verdict.error))
    for warning in verdict.warnings:
        log.warning(warning)


def judge(found: Surroundings, environ: Mapping[str, str]) -> Verdict:
    """Pure but for the device files. The first of the errors counts: what comes later may follow from it."""
    verdict = Verdict()
    wanted = devices.visible(environ)
    build, driver = found.build, found.driver
    nccl = environ.get("DTJ_STRATEGY") in STRATEGIES and environ.get("DTJ_COMMUNICATION") != RING
    failed = {
        name: why
        for name, why in found.libraries.items()
        if why is not None and (nccl or not name.startswith("libnccl"))
    }
    if build is not None and not build["is_cuda"]:
        verdict.error = UsageError(
            f"GPU: the task has {wanted}, and TensorFlow {found.tensorflow} is built without CUDA: it would train on "
            "the CPU; use the trainer's image for GPUs (VARIANT=gpu), or leave out spec.accelerator"
        )
    elif "missing" in driver and os.path.exists(f"{devices.ROOT}{MOUNTED_DRIVER}/libcuda.so.1"):
        verdict.error = UsageError(
            f"GPU: the task has {wanted}, and the driver is where GKE mounts it and the loader does not look; add "
            f"{MOUNTED_DRIVER} to LD_LIBRARY_PATH, in env or in the image"
        )
    elif "missing" in driver:
        verdict.error = Unavailable(
            f"GPU: the task has {wanted}, and the driver's libcuda.so.1 cannot be loaded "
            f"({_short(driver['missing'])}); the container runtime mounts it: check NVIDIA's container toolkit on the "
            "node, runtimeClassName, and that NVIDIA_DRIVER_CAPABILITIES has compute"
        )
    elif "error" in driver:
        verdict.error = Unavailable(
            f"GPU: the driver ends with {driver['error']}; look at nvidia-smi and the kernel's log on the node, or "
            "keep pods away from it"
        )
    elif build is not None and _of_driver(driver)[0] < _numbers(build["cuda"])[0]:
        verdict.error = Unavailable(
            f"GPU: the node's driver is for CUDA {_dotted(_of_driver(driver))}, and this TensorFlow for "
            f"{build['cuda']}; update the driver, or choose nodes with a newer one"
        )
    elif failed:
        name, why = next(iter(failed.items()))
        verdict.error = UsageError(f"GPU: {name} cannot be loaded ({_short(why)}), {_without(name)}")
    else:
        seen = [(major, minor) for major, minor in driver["gpus"]]
        verdict.error = _count(seen, wanted, environ) or _capability(seen, found, verdict.warnings)
    if wanted > 1 and found.shared_memory < _ENOUGH_SHARED_MEMORY:
        verdict.warnings.append(
            f"GPU: /dev/shm has {found.shared_memory >> 20} MiB, which NCCL may use up; mount an emptyDir with medium: "
            "Memory there"
        )
    return verdict


def _without(library: str) -> str:
    """What follows, and what to do."""
    if library.startswith("libnccl"):
        return (
            "so GPUs cannot add up gradients by NCCL; install nvidia-nccl-cu12, or set spec.communication: Ring "
            "(--communication=ring)"
        )
    return (
        "and TensorFlow would train on the CPU without a word of it; use the trainer's image for GPUs, or install "
        "tensorflow[and-cuda], without another CUDA in LD_LIBRARY_PATH"
    )


def _count(seen: Sequence[Tuple[int, int]], wanted: int, environ: Mapping[str, str]) -> LauncherError | None:  # noqa: UP006
    if len(seen) < wanted:
        if "MIG-" in environ.get("NVIDIA_VISIBLE_DEVICES", ""):
            return UsageError(
                f"GPU: the task has {wanted} partitions of GPUs (MIG), of which a process uses {len(seen)}; ask for "
                "one in each pod"
            )
        return Unavailable(
            f"GPU: the task was granted {wanted}, and CUDA sees {len(seen)}; look at nvidia-smi and the kernel's log "
            "(Xid) on the node"
        )
    if len(seen) > wanted:
        return UsageError(
            f"GPU: the task was granted {wanted}, and CUDA sees {len(seen)}, others' among them; a privileged "
            "container has all of the node: leave out privileged, or set CUDA_VISIBLE_DEVICES"
        )
    return None


def _capability(
    seen: Sequence[Tuple[int, int]],  # noqa: UP006
    found: Surroundings,
    warnings: list[str],
) -> LauncherError | None:
    built = [] if found.build is None else [_ARCHITECTURE.fullmatch(one) for one in found.build["capabilities"]]
    known = [(match[1], (int(match[2]), int(match[3]))) for match in built if match]
    if found.build is None or not known:
        return None
    for gpu in sorted(set(seen)):
        listed = ", ".join(found.build["capabilities"])
        what = f"GPU: compute capability {gpu[0]}.{gpu[1]}, and TensorFlow {found.tensorflow} is built for {listed}"
        if any(kind == "sm" and number[0] == gpu[0] and number <= gpu for kind, number in known):
            continue
        portable = [number for kind, number in known if kind == "compute" and number <= gpu]
        if not portable or (gpu[0] >= _PTX_FAILS and max(portable)[0] < _PTX_FAILS):
            return UsageError(
                f"{what}; use an image whose TensorFlow is built for it, such as NVIDIA's, or another GPU"
            )
        # NVIDIA's minor version compatibility holds for what is compiled already.
        has, needs = _of_driver(found.driver), _numbers(found.build["cuda"])
        older = (
            f"; the driver is for CUDA {_dotted(has)}, and may refuse what CUDA {_dotted(needs)} has left to compile "
            "(CUDA_ERROR_UNSUPPORTED_PTX_VERSION): then update it"
        )
        warnings.append(
            f"{what}: the first start compiles for up to half an hour; keep that with CUDA_CACHE_PATH on a volume and "
            f"CUDA_CACHE_MAXSIZE=4294967296{older if has < needs else ''}"
        )
    return None


def _shared_memory() -> int:
    try:
        found = os.statvfs(os.path.join(devices.ROOT, "dev/shm"))
    except OSError:  # it is not known
        return _ENOUGH_SHARED_MEMORY
    return found.f_frsize * found.f_blocks


def _of_driver(driver: Mapping[str, Any]) -> Tuple[int, int]:  # noqa: UP006
    """The version of CUDA that it is for."""
    major, minor = divmod(driver["version"] // 10, 100)
    return major, minor


def _numbers(version: str) -> Tuple[int, int]:  # noqa: UP006
    """Major and minor; 0 for what is not known."""
    major, minor = [int(part) if part.isdecimal() else 0 for part in (*version.split("."), "0")][:2]
    return major, minor


def _dotted(numbers: Tuple[int, int]) -> str:  # noqa: UP006
    return f"{numbers[0]}.{numbers[1]}"


def _short(why: str) -> str:
    return why.splitlines()[0][:150] if why else "no reason"
