"""TensorFlow's surroundings: its noise, its threads, and the variables that it reads when it is imported."""

import logging
import os
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

from dtj_launch import tf_config
from dtj_trainer.config.data import SERVICE_ADDRESS

_CGROUP = Path("/sys/fs/cgroup")
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables by which gRPC finds one; it reads none in capitals."""
_MAX_WAITING = 128
"""Threads, which cost memory, and of which few wait at the same time in a large cluster."""


def prepare(environ: MutableMapping[str, str]) -> None:
    """Sets what TensorFlow and Keras read on import. What the user set stays."""
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    environ.setdefault("GRPC_VERBOSITY", "NONE")
    # TensorFlow's guide to parameter servers: report a lost server at once instead of waiting for its return.
    environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    # The model code is TensorFlow's; a keras.json that names another backend must not break it.
    environ["KERAS_BACKEND"] = "tensorflow"
    with suppress(tf_config.TfConfigError):  # reported when the options are read
        tf_config.write_out(environ)
    # A variable that is there and empty means no cluster to us; TensorFlow would stumble over it.
    if not environ.get("TF_CONFIG", "").strip():
        environ.pop("TF_CONFIG", None)
    reach_tasks_directly(environ)
    set_threads(environ)


def reach_tasks_directly(environ: MutableMapping[str, str]) -> None:
    """Keeps what TensorFlow sends to the tasks of the job from a proxy for HTTP, where the environment has one.

    gRPC would ask it for each task, by a name that only the cluster knows, and without end.
    """
    if not any(environ.get(name) for name in _PROXIES):
        return
    try:
        cluster = tf_config.parse(environ).cluster
    except tf_config.TfConfigError:
        return  # reported when the options are read
    hosts = [host for peers in cluster.values() for host, _ in peers]
    hosts.append(environ.get(SERVICE_ADDRESS, "").rpartition(":")[0])
    known = environ.get("no_grpc_proxy") or environ.get("no_proxy") or ""
    around = dict.fromkeys([*known.split(","), *map(_domain, hosts)])
    environ["no_grpc_proxy"] = ",".join(filter(None, around))


def _domain(host: str) -> str:
    """What the hosts of a job have in common, of which there may be more than fit into a variable; an IP address."""
    _, dot, domain = host.partition(".")
    return domain if dot and not host.replace(".", "").isdecimal() else host


def set_threads(environ: MutableMapping[str, str]) -> None:
    """Has TensorFlow start as many threads as there are CPUs for this process, unless the user says how many.

    Of those that run whole operations it starts more than the cluster has tasks. TensorFlow's guide to parameter
    servers asks for it: an operation that waits for another task keeps its thread, and where there is one CPU, and so
    one thread, the tasks wait for each other forever.
    """
    if "OMP_NUM_THREADS" not in environ:
        environ.setdefault("TF_NUM_INTRAOP_THREADS", str(cpu_limit()))
    try:
        tasks = sum(map(len, tf_config.parse(environ).cluster.values()))
    except tf_config.TfConfigError:
        return  # reported when the options are read
    if tasks and cpu_count() <= tasks:
        environ.setdefault("TF_NUM_INTEROP_THREADS", str(min(tasks + 1, _MAX_WAITING)))


def configure() -> None:
    """Imports TensorFlow, and has it and what it imports log no more than is asked for."""
    if os.environ["TF_CPP_MIN_LOG_LEVEL"] not in ("0", "1"):
        for name in ("absl", "tensorflow", "tf_keras"):
            logging.getLogger(name).setLevel(logging.ERROR)
    import tensorflow  # noqa: F401


def cpu_limit(cgroup: Path = _CGROUP) -> int:
    """Whole CPUs that this process may use: its affinity, or its container's quota where that is less.

    TensorFlow itself sees all CPUs of the node, and one thread for each of them fights over a small quota.
    """
    allowed = cpu_count()
    version_1 = _read(cgroup, "cpu/cpu.cfs_quota_us"), _read(cgroup, "cpu/cpu.cfs_period_us")
    quota = _quota(_read(cgroup, "cpu.max").split() or version_1)
    return max(1, min(allowed, allowed if quota is None else round(quota)))


def cpu_count() -> int:
    """The CPUs that this process may run on, whatever its quota of their time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota(limit: Sequence[str]) -> float | None:
    """CPUs that a quota and its period, in microseconds, amount to; None without a limit."""
    try:
        quota, period = (int(part) for part in limit)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read(directory: Path, name: str) -> str:
    try:
        return (directory / name).read_text().strip()
    except OSError:
        return ""
