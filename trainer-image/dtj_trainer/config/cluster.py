"""TF_CONFIG as values: which tasks this job has, where they listen, and which of them this process is.

Pure parsing. It opens no socket and must not import TensorFlow.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dtj_launch import tf_config
from dtj_trainer.errors import UsageError

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

    @property
    def devices(self) -> str:
        """What TensorFlow's names of its devices begin with."""
        return f"/job:{self.role}/replica:0/task:{self.index}/device"

    @property
    def cpu(self) -> str:
        """TensorFlow's name of its CPU."""
        return f"{self.devices}:CPU:0"


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
    likely_strategy: str | None = None
    """What such a cluster is for; None for a process without peers."""

    def count(self, role: str) -> int:
        """How many tasks of this role the cluster has."""
        return sum(task.role == role for task in self.addresses)

    @property
    def own_address(self) -> Address | None:
        """Where this task's own server will listen."""
        return self.addresses.get(self.task)

    @property
    def leader(self) -> Task:
        """The chief, or worker 0 where there is none, or the only task: it saves, reports and exports."""
        if not self.addresses and self.task.role in (CHIEF, WORKER):
            return self.task
        return Task(CHIEF if self.count(CHIEF) else WORKER, 0)

    @property
    def leads(self) -> bool:
        """Whether this process is the leader."""
        return self.task == self.leader

    @property
    def common_log_level(self) -> int:
        """Level of a line that all tasks have in common: only the leader's is above `logging.DEBUG`."""
        return logging.INFO if self.leads else logging.DEBUG

    @property
    def trainers(self) -> list[Task]:
        """The chief and the workers, in this order."""
        return sorted(task for task in self.addresses if task.role in (CHIEF, WORKER))

    def peers(self, *roles: str) -> dict[Task, Address]:
        """The other tasks of the given roles."""
        return {t: a for t, a in self.addresses.items() if t.role in roles and t != self.task}


def from_environment(environ: Mapping[str, str]) -> Cluster:
    """Reads TF_CONFIG as `dtj_launch.tf_config` does, for the roles that the trainer knows.

    Raises:
        UsageError: TF_CONFIG is malformed, contradicts DTJ_ROLE or DTJ_INDEX, or does not list this task; or the
            role is unknown.
    """
    try:
        config = tf_config.parse(environ)
    except tf_config.TfConfigError as error:
        raise UsageError(str(error)) from None
    if config.role not in ROLES:
        raise UsageError(f"role {tf_config.short(config.role)}: this trainer knows {', '.join(ROLES)}; use one of them")
    task = Task(config.role, config.index)
    addresses = {
        Task(role, index): Address(*peer)
        for role, listed in config.cluster.items()
        for index, peer in enumerate(listed)
    }
    if task.role not in OUTSIDERS and addresses and task not in addresses:
        raise UsageError(f"TF_CONFIG: task is {task}, but cluster lists no such task; list its address there")
    return Cluster(task=task, addresses=MappingProxyType(addresses), likely_strategy=tf_config.likely_strategy(config))
