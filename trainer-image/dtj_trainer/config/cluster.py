"""TF_CONFIG as values: which tasks this job has, where they listen, and which of them this process is.

Pure parsing. It opens no socket and must not import TensorFlow.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dtj_trainer.process.errors import UsageError

CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
DISPATCHER, DATA_WORKER = "dispatcher", "data-worker"
ROLES = (CHIEF, WORKER, PS, EVALUATOR, DISPATCHER, DATA_WORKER)
OUTSIDERS = frozenset({EVALUATOR, DISPATCHER, DATA_WORKER})
"""Tasks that appear in nobody's cluster."""


@dataclass(frozen=True, order=True)
class Task:
    """One replica of the job, as TF_CONFIG names it."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


@dataclass(frozen=True)
class Address:
    """Where a task's gRPC server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The tasks of the job that talk to each other, seen from one of them.

    A task of `OUTSIDERS`, and a process without TF_CONFIG, has no address of its own.
    """

    task: Task
    addresses: Mapping[Task, Address]

    def count(self, role: str) -> int:
        """How many tasks of this role the cluster has."""
        return sum(task.role == role for task in self.addresses)

    @property
    def own_address(self) -> Address | None:
        """Where this task's own server will listen."""
        return self.addresses.get(self.task)

    @property
    def leader(self) -> Task:
        """The chief, or worker 0 where there is none: it saves, reports and exports."""
        return Task(CHIEF if self.count(CHIEF) else WORKER, 0)

    @property
    def leads(self) -> bool:
        """Whether this process is the leader."""
        return self.task == self.leader

    def peers(self, *roles: str) -> dict[Task, Address]:
        """The other tasks of the given roles."""
        return {t: a for t, a in self.addresses.items() if t.role in roles and t != self.task}


def from_environment(environ: Mapping[str, str]) -> Cluster:
    """Reads TF_CONFIG, and DTJ_ROLE and DTJ_INDEX where there is none or the config has no task.

    Raises:
        UsageError: TF_CONFIG is malformed, contradicts DTJ_ROLE or DTJ_INDEX, or the role is unknown.
    """
    raw = environ.get("TF_CONFIG", "").strip()
    config = _object(raw) if raw else {}
    addresses = _addresses(config.get("cluster", {}))
    task = _task(config.get("task", {}), environ)
    if task.role not in OUTSIDERS and addresses and task not in addresses:
        raise UsageError(f"TF_CONFIG: task is {task}, but cluster lists no such task; list its address there")
    return Cluster(task=task, addresses=MappingProxyType(addresses))


def _object(raw: str) -> dict[str, object]:
    try:
        config = json.loads(raw)
    except json.JSONDecodeError as error:
        raise UsageError(f"TF_CONFIG={_short(raw)}: not JSON ({error}); {_REMEDY}") from None
    if not isinstance(config, dict):
        raise UsageError(f"TF_CONFIG={_short(raw)}: not a JSON object; {_REMEDY}")
    return config


def _addresses(cluster: object) -> dict[Task, Address]:
    if not isinstance(cluster, dict):
        raise UsageError(f"TF_CONFIG: cluster is {_short(cluster)}, not an object; {_REMEDY}")
    addresses = {}
    for role, listed in cluster.items():
        if not isinstance(listed, list):
            raise UsageError(f"TF_CONFIG: cluster.{role} is {_short(listed)}, not a list; {_REMEDY}")
        for index, text in enumerate(listed):
            addresses[Task(role, index)] = _address(f"cluster.{role}[{index}]", text)
    return addresses


def _address(path: str, text: object) -> Address:
    host, _, port = str(text).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"TF_CONFIG: {path} is {_short(text)}, not host:port; {_REMEDY}")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _task(task: object, environ: Mapping[str, str]) -> Task:
    if not isinstance(task, dict):
        raise UsageError(f"TF_CONFIG: task is {_short(task)}, not an object; {_REMEDY}")
    role = task.get("type", environ.get("DTJ_ROLE") or WORKER)
    index = str(task.get("index", environ.get("DTJ_INDEX") or "0"))
    for name, seen, variable in (("type", role, "DTJ_ROLE"), ("index", index, "DTJ_INDEX")):
        if environ.get(variable, "") not in ("", seen):
            raise UsageError(f"{variable}={environ[variable]}: TF_CONFIG says task.{name} {seen}; unset one of the two")
    if role not in ROLES:
        raise UsageError(f"role {_short(role)}: this trainer knows {', '.join(ROLES)}; use one of them")
    if not index.isdecimal():
        raise UsageError(f"task index {_short(index)}: not a whole number; {_REMEDY}")
    return Task(str(role), int(index))


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


_REMEDY = 'give e.g. {"cluster": {"worker": ["host:2222"]}, "task": {"type": "worker", "index": 0}}'
