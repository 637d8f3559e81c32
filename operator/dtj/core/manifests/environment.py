"""The variables of a replica: what its program must know of the job and of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from dtj.api.job import Job
from dtj.api.json import JsonObject, objects, text
from dtj.api.names import Env
from dtj.api.spec import DATA_SERVICE, JobSpec, RestartScope, Role
from dtj.api.status import JobStatus
from dtj.api.storage import AUTO
from dtj.core.manifests.tf_config import Variables
from dtj.core.platform import Network, Platform, address_of
from dtj.core.replicas import Replica

_AUTO: Final = RestartScope.AUTO


def environment(
    job: Job,
    spec: JobSpec,
    replica: Replica,
    *,
    platform: Platform,
    cluster: Variables,
    tpu: Mapping[str, str],
) -> Variables:
    """Our variables of a replica; ``cluster`` are TF_CONFIG and what it refers to, ``tpu`` those that libtpu needs."""
    network, directories = platform.network, platform.directories
    checkpoint = spec.checkpoint
    memory = directories.memory(spec, replica)
    chooses = checkpoint is not None and checkpoint.every_seconds == AUTO
    every_steps = checkpoint.in_memory.every_steps if checkpoint is not None and checkpoint.in_memory else None
    optional = {
        Env.BIND_ADDRESS: platform.bind_address or None,
        Env.CHECKPOINT_DIR: directories.checkpoint(spec),
        Env.EXPORT_DIR: directories.export(spec),
        Env.EXPORT_FORMATS: ",".join(spec.export.formats) if spec.export is not None else None,
        Env.LOG_DIR: directories.logs(spec),
        Env.LOG_FORMAT: platform.trainer_log_format,
        Env.CHECKPOINT_EVERY_STEPS: checkpoint.every_steps if checkpoint is not None else None,
        Env.CHECKPOINT_EVERY_SECONDS: checkpoint.every_seconds if checkpoint is not None else None,
        Env.CHECKPOINT_KEEP: checkpoint.keep if checkpoint is not None else None,
        Env.CHECKPOINT_MEMORY_DIR: memory,
        Env.CHECKPOINT_MEMORY_EVERY_STEPS: every_steps if memory is not None else None,
        Env.SECONDS_BETWEEN_LOSSES: _seconds_between_losses(job.status) if chooses else None,
        Env.ON_NAN: spec.run_policy.on_nan.lower() if spec.run_policy.on_nan is not None else None,
        Env.COMMUNICATION: spec.communication.lower() if spec.communication is not None else None,
        # The launcher waits longer for a lost peer if that comes back in a new pod.
        Env.RESTART_SCOPE: spec.run_policy.restart_scope if spec.run_policy.restart_scope is not _AUTO else None,
    }
    return {
        **cluster,
        Env.JOB_NAME: job.name,
        # At the start gate, pods of one job recognize each other by this.
        Env.JOB_UID: job.uid,
        Env.NAMESPACE: job.namespace,
        Env.STRATEGY: str(spec.strategy),
        Env.ROLE: job.form.word(replica.role),
        Env.INDEX: str(replica.index),
        Env.ATTEMPT: str(job.attempt),
        Env.STATUS_PORT: str(network.status_port(role=replica.role, index=replica.index)),
        **{name: str(value) for name, value in optional.items() if value is not None},
        **_data_service(job, spec, replica, network),
        **tpu,
    }


def _seconds_between_losses(status: JobStatus) -> int | None:
    """The mean time for which the job held nodes until a restart that it had not saved for; None without any."""
    losses = status.restarts.total - status.restarts.preemption
    if status.goodput is None or losses <= 0:
        return None
    return max(1, status.goodput.seconds.held // losses)


def with_environment(container: JsonObject, environment: Variables) -> JsonObject:
    """``container`` with variables of ours, which win over the user's; itself it stays as it is.

    A kubelet expands ``$(NAME)`` by the variables that come before. Those of ours that the user's refer to come first,
    the others last: errors of the API server name a variable by its place, which should be that in the manifest.
    """
    users = [variable for variable in objects(container.get("env")) if variable.get("name") not in environment]
    wanted = _referred_to(environment, [text(variable.get("value")) for variable in users])
    first = [_variable(name, value) for name, value in environment.items() if name in wanted]
    rest = [_variable(name, value) for name, value in environment.items() if name not in wanted]
    return {**container, "env": [*first, *users, *rest]}


def _variable(name: str, value: str | JsonObject) -> JsonObject:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}


def _referred_to(environment: Variables, values: list[str]) -> set[str]:
    """The variables of ``environment`` that these values refer to, and those that they refer to themselves."""
    found: set[str] = set()
    while values:
        named = {name for name in environment if any(f"$({name})" in value for value in values)} - found
        found |= named
        values = [value for name in named if isinstance(value := environment[name], str)]
    return found


def merged_environment(container: JsonObject, variables: list[JsonObject]) -> list[JsonValue]:
    """A container's variables; one of the same name is replaced where it stands, so that $(VAR) references hold."""
    merged = {str(variable.get("name")): variable for variable in objects(container.get("env"))}
    merged.update({str(variable.get("name")): variable for variable in variables})
    return list(merged.values())


def _data_service(job: Job, spec: JobSpec, replica: Replica, network: Network) -> dict[str, str]:
    """What a replica learns of the job's tf.data service, if any: the dispatcher's address; and the service's own
    replicas, by which host and port they are reached. Its servers are no tasks of the strategy, nor in TF_CONFIG."""
    if spec.replicas(Role.DISPATCHER) == 0:
        return {}
    values = {Env.DATA_SERVICE_ADDRESS: address_of(Replica(Role.DISPATCHER, 0), job, spec, network)}
    if replica.role in DATA_SERVICE:
        values[Env.HOST], _, values[Env.DATA_SERVICE_PORT] = address_of(replica, job, spec, network).rpartition(":")
    return values
