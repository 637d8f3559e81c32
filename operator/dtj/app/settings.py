"""The settings of the operator, each with its meaning and default."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject
from dtj.api.profiles import Profile
from dtj.api.spec import CleanPodPolicy, Gang
from dtj.core.platform import JobAccess
from dtj.engine.logs import LogFormat
from dtj.engine.profile_file import ProfilesError, profiles
from dtj.kube.config import ConnectionSource


class SettingsError(Exception):
    """A setting cannot be used; the message says which and why, in one line."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """All settings of the operator. The command line's options have the same names, with dashes; environment
    variables have them in capitals after ``DTJ_OPERATOR_``."""

    namespaces: tuple[str, ...] = ()
    """The namespaces whose jobs are run; none means all of the cluster.

    With namespaces given, the operator needs no right outside of them.
    """

    kubeconfig: str | None = None
    """The kubeconfig file. By default the service account of the operator's own pod, else ``$KUBECONFIG``, else
    ``~/.kube/config``."""

    context: str | None = None
    """The context of the kubeconfig; its current context by default."""

    workers: int = 32
    """Jobs of one namespace that are worked on at the same time; there are as many workers again for the others. One
    worker can start about ten jobs a second."""

    relist_seconds: float = 300.0
    """Time between two full lists of jobs, the safety net for what a watch may miss."""

    leader_elect: bool = False
    """Whether to run jobs only while holding a lease, so that several operators can stand by for each other."""

    lease_namespace: str | None = None
    """The namespace of the lease, in which the operator needs a right to it; required with ``leader_elect``."""

    lease_name: str = names.MANAGER
    """The name of the lease. Operators that run jobs of different namespaces need different leases."""

    accelerator_profiles: Path | None = None
    """A YAML file with a list of accelerator profiles. They join the shipped ones and replace those of the same
    name."""

    restricted: bool = False
    """Whether pods get all that the Pod Security Standard "restricted" asks for: runAsNonRoot, and all
    capabilities dropped. Off by default since many training images run as root. In namespaces that enforce the
    standard, pods get it anyway."""

    trainer_image: str = ""
    """The image of trainer containers whose template names none. Without it, such a job is refused by the API
    server."""

    trainer_log_format: str | None = None
    """Format of the trainer's log lines in all jobs: plain, text or json. Without it, each job decides."""

    network_policies: JobAccess | None = None
    """The peers that may connect to the pods of jobs, as JSON with two lists of NetworkPolicy peers: ``statusFrom``
    (port 2223; the operator's own pods, perhaps Prometheus) and ``tensorBoardFrom`` (port 6006). If it is given, each
    job gets a NetworkPolicy before its first pod. It admits these peers and the job's own pods. Otherwise jobs get
    none."""

    tfjobs: bool = False
    """Whether to run TFJobs of Kubeflow too. It needs the CRD of the chart, and no other operator that serves them."""

    tfjob_clean_pod_policy: CleanPodPolicy = CleanPodPolicy.NONE
    """The ``cleanPodPolicy`` of TFJobs that name none. None is Kubeflow's default, and leaves pods that still run at
    the end of a job, such as parameter servers, with their GPUs."""

    tfjob_gang_scheduler: Gang = Gang.NONE
    """The scheduler that starts all pods of a TFJob or none, for all TFJobs: None, Volcano or Coscheduling."""

    tfjob_queues: bool = False
    """Whether our operator queues TFJobs in Kueue by their label. Kueue's own integration of them must be off then."""

    tfjob_cluster_domain: str = ""
    """What ends the addresses in TF_CONFIG of a TFJob, such as ``cluster.local``; empty if the pods' resolver adds it.
    Kubeflow's operator reads it from CUSTOM_CLUSTER_DOMAIN, which holds here, too."""

    health_port: int = 8080
    """Port of ``/healthz`` (liveness) and ``/readyz`` (readiness), on all interfaces; 0 for none."""

    metrics_port: int = 8000
    """Port of ``/metrics`` for Prometheus, on all interfaces; 0 for none."""

    log_format: LogFormat = LogFormat.AUTO
    """``json``, ``text``, or ``auto``: text on a terminal, JSON elsewhere."""

    verbose: bool = False
    """Whether the log also has debug messages."""

    instance: str = field(default_factory=socket.gethostname)
    """Who we are in events (``reportingInstance``) and in the lease: the host name, in a cluster the pod's."""

    @property
    def connection(self) -> ConnectionSource:
        """Where the API server is."""
        return ConnectionSource(kubeconfig=self.kubeconfig, context=self.context)

    @property
    def watched_namespaces(self) -> tuple[str | None, ...]:
        """The namespaces as the Gateway wants them: None stands for all."""
        return self.namespaces or (None,)

    def profiles(self) -> dict[str, Profile]:
        """The accelerator profiles by name. Raises SettingsError if the file cannot be used."""
        try:
            return profiles(self.accelerator_profiles)
        except ProfilesError as error:
            raise SettingsError(str(error)) from error


_FIELDS: Final = ("statusFrom", "tensorBoardFrom")
_SELECTORS: Final = ("podSelector", "namespaceSelector", "ipBlock")


def job_access(text: str) -> JobAccess:
    """The setting from its JSON, such as ``{"statusFrom": [{"podSelector": {}}]}``; ``{}`` lets in nobody.

    Peers are those of NetworkPolicy (networking.k8s.io/v1); what is in their selectors is checked by the API server.
    Raises ValueError, which names the field.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"must be a JSON object with {' and '.join(_FIELDS)}")
    for name in given:
        if name not in _FIELDS:
            raise ValueError(f"{name}: unknown field; the fields are {' and '.join(_FIELDS)}")
    return JobAccess(
        status=_peers("statusFrom", given.get("statusFrom")),
        tensorboard=_peers("tensorBoardFrom", given.get("tensorBoardFrom")),
    )


def _peers(field: str, given: object) -> tuple[JsonObject, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ValueError(f"{field}: must be a list of NetworkPolicy peers")
    for index, peer in enumerate(given):
        known = (
            isinstance(peer, dict)
            and peer
            and all(name in _SELECTORS and isinstance(value, dict) for name, value in peer.items())
        )
        if not known:
            # A peer without any selector would let everybody in.
            raise ValueError(f"{field}[{index}]: must be an object with {', '.join(_SELECTORS)}")
    return tuple(given)
