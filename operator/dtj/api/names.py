"""Every name that the project puts into a cluster: group, labels, variables, conditions, reasons.

One place, so that the operator, the command line, the chart's tests and the documents cannot disagree.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

GROUP: Final = "training.dtj.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "DistributedTrainingJob"
PLURAL: Final = "distributedtrainingjobs"
SINGULAR: Final = "distributedtrainingjob"
SHORT_NAME: Final = "dtj"
CATEGORY: Final = "training"

IMAGE_REGISTRY: Final = "registry.example"
"""Registry and owner of the project's images. Nobody can own this domain; scripts/release.py sets that of a release."""

MANAGER: Final = "dtj-operator"
"""Value of ``app.kubernetes.io/managed-by`` and reporting controller of our events."""

CONTROLLER: Final = f"{GROUP}/{MANAGER}"
"""Our name in ``spec.managedBy``."""

MAIN_CONTAINER: Final = "trainer"
"""The container whose end decides; needed by name only where a template has several."""

MAX_NAME_LENGTH: Final = 63
"""Longest name of a generated object: pod names are host names and label values (RFC 1123)."""

RESTART_SUFFIX_LENGTH: Final = len("-r999")
"""What later incarnations of a pod append to its name."""

DEFAULT_PORT: Final = 2222
STATUS_PORT: Final = 2223
"""Where a trainer serves its progress; next to TensorFlow's own default port."""

TENSORBOARD: Final = "tensorboard"
"""The role label of a job's TensorBoard, which is no replica."""

TENSORBOARD_PORT: Final = 6006

MAX_VARIABLE_LENGTH: Final = 131_072 - 1
"""Most bytes of ``NAME=value`` that a program can be started with: 32 pages with the NUL at the end (Linux,
MAX_ARG_STRLEN). With more the container cannot start: "argument list too long"."""

CHECKPOINT_MOUNT: Final = "/dtj/checkpoint"
CHECKPOINT_VOLUME: Final = "dtj-checkpoint"
MEMORY_MOUNT: Final = "/dtj/memory"
MEMORY_VOLUME: Final = "dtj-memory"
SHARED_MEMORY_MOUNT: Final = "/dev/shm"
SHARED_MEMORY_VOLUME: Final = "dtj-shm"
WORLD_MOUNT: Final = "/dtj/world"
WORLD_VOLUME: Final = "dtj-world"


class Label:
    """Label keys of everything that a job owns."""

    JOB_NAME: Final = f"{GROUP}/job-name"
    JOB_UID: Final = f"{GROUP}/job-uid"
    ROLE: Final = f"{GROUP}/role"
    INDEX: Final = f"{GROUP}/index"
    ATTEMPT: Final = f"{GROUP}/attempt"
    INCARNATION: Final = f"{GROUP}/incarnation"
    """On later pods of a replica of a TFJob: how often it was started before."""

    APP_NAME: Final = "app.kubernetes.io/name"
    APP_INSTANCE: Final = "app.kubernetes.io/instance"
    APP_COMPONENT: Final = "app.kubernetes.io/component"
    APP_PART_OF: Final = "app.kubernetes.io/part-of"
    APP_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class Annotation:
    """Annotation keys of what a job owns."""

    GANG_SIZE: Final = f"{GROUP}/gang-size"
    GANG_PODS: Final = f"{GROUP}/gang-pods"
    """On a Workload of Kueue: a digest of what Kueue reads of the job's pods."""
    LAST_CHECKPOINT: Final = f"{GROUP}/last-checkpoint-time"
    """On a Workload of Kueue: ``status.progress.lastCheckpointTime`` of the job, some minutes old."""
    POLICY_DIGEST: Final = f"{GROUP}/policy-digest"
    CLUSTER: Final = f"{GROUP}/cluster"
    """On a job's Service: the name of the ConfigMap with the addresses of its replicas. It is there if this is set."""
    WORLD: Final = f"{GROUP}/world"
    """On the pods of an elastic job: the replicas that train together now. The launcher reads it from a file."""
    MAIN_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
    """Names the container that trains, on each pod: a webhook may add others, also before it. kubectl reads it too."""


class Env:
    """Environment variables that each container of a job gets."""

    TF_CONFIG: Final = "TF_CONFIG"
    PREFIX: Final = "DTJ_"
    CLUSTER: Final = "DTJ_CLUSTER"
    CLUSTER_ADDRESS: Final = "DTJ_CLUSTER_ADDRESS"
    CLUSTER_COUNTS: Final = "DTJ_CLUSTER_COUNTS"
    JOB_NAME: Final = "DTJ_JOB_NAME"
    JOB_UID: Final = "DTJ_JOB_UID"
    NAMESPACE: Final = "DTJ_NAMESPACE"
    STRATEGY: Final = "DTJ_STRATEGY"
    ROLE: Final = "DTJ_ROLE"
    INDEX: Final = "DTJ_INDEX"
    ATTEMPT: Final = "DTJ_ATTEMPT"
    CHECKPOINT_DIR: Final = "DTJ_CHECKPOINT_DIR"
    CHECKPOINT_EVERY_STEPS: Final = "DTJ_CHECKPOINT_EVERY_STEPS"
    CHECKPOINT_EVERY_SECONDS: Final = "DTJ_CHECKPOINT_EVERY_SECONDS"
    CHECKPOINT_KEEP: Final = "DTJ_CHECKPOINT_KEEP"
    CHECKPOINT_MEMORY_DIR: Final = "DTJ_CHECKPOINT_MEMORY_DIR"
    CHECKPOINT_MEMORY_EVERY_STEPS: Final = "DTJ_CHECKPOINT_MEMORY_EVERY_STEPS"
    EXPORT_DIR: Final = "DTJ_EXPORT_DIR"
    EXPORT_FORMATS: Final = "DTJ_EXPORT_FORMATS"
    LOG_DIR: Final = "DTJ_LOG_DIR"
    LOG_FORMAT: Final = "DTJ_LOG_FORMAT"
    SECONDS_BETWEEN_LOSSES: Final = "DTJ_SECONDS_BETWEEN_LOSSES"
    STATUS_PORT: Final = "DTJ_STATUS_PORT"
    BIND_ADDRESS: Final = "DTJ_BIND_ADDRESS"
    RESTART_SCOPE: Final = "DTJ_RESTART_SCOPE"
    ON_NAN: Final = "DTJ_ON_NAN"
    COMMUNICATION: Final = "DTJ_COMMUNICATION"
    WORLD_FILE: Final = "DTJ_WORLD_FILE"
    DATA_SERVICE_ADDRESS: Final = "TF_DATA_SERVICE_ADDRESS"
    DATA_SERVICE_PORT: Final = "DTJ_DATA_SERVICE_PORT"
    HOST: Final = "DTJ_HOST"
    TPU_WORKER_ID: Final = "TPU_WORKER_ID"
    TPU_WORKER_HOSTNAMES: Final = "TPU_WORKER_HOSTNAMES"


def is_reserved(variable: str) -> bool:
    """Whether the operator alone sets the variable of this name."""
    return variable == Env.TF_CONFIG or variable.startswith(Env.PREFIX)


class Condition(StrEnum):
    """Types of ``status.conditions`` (metav1.Condition); all are set early, as KEP-1623 asks.

    SuccessCriteriaMet and FailureTarget come before Complete and Failed, as on a batch Job: they record how the
    job will end while pods are still being stopped, so that a restarted operator ends it the same way. Ready,
    Reconciling and Stalled mean what kstatus means by them (sigs.k8s.io/cli-utils); ProgressStalled is about training.
    """

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    PODS_READY = "PodsReady"
    SUSPENDED = "Suspended"
    RESTARTING = "Restarting"
    PROGRESS_STALLED = "ProgressStalled"
    INVALID = "Invalid"
    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    FAILURE_TARGET = "FailureTarget"
    COMPLETE = "Complete"
    FAILED = "Failed"


class State(StrEnum):
    """``status.state``: one word for the printer column; decisions read the conditions."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Reason(StrEnum):
    """Reasons of conditions and events."""

    PENDING = "Pending"
    VALID = "Valid"
    NOT_FINISHED = "NotFinished"
    NOT_FAILED = "NotFailed"
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_ACCELERATOR_PROFILE = "UnknownAcceleratorProfile"
    TOPOLOGY_MISMATCH = "TopologyMismatch"
    TEMPLATE_REJECTED = "TemplateRejected"
    NAME_TAKEN = "NameTaken"
    MANAGED_TWICE = "ManagedTwice"
    STATUS_DROPPED = "StatusDropped"
    EMPTY_DIR_IS_LOST = "EmptyDirIsLost"
    FIELD_IGNORED = "FieldIgnored"
    TEMPLATE_RESTART_POLICY = "SetPodTemplateRestartPolicy"
    WAITING_FOR_PODS = "WaitingForPods"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    POD_START_FAILED = "PodStartFailed"
    CONTAINER_FAILED = "ContainerFailed"
    ALL_PODS_READY = "AllPodsReady"
    STOPPING_PODS = "StoppingPods"
    PODS_KEPT = "PodsKept"
    JOB_FINISHED = "JobFinished"
    PODS_CREATED = "PodsCreated"
    POD_CREATION_FAILED = "PodCreationFailed"
    API_CALL_FAILED = "ApiCallFailed"
    OPERATOR_ERROR = "OperatorError"
    REPLICA_FAILED = "ReplicaFailed"
    FATAL_EXIT_CODE = "FatalExitCode"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DISRUPTION_LIMIT_EXCEEDED = "DisruptionLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    REPLICA_LOST = "ReplicaLost"
    REPLICA_RESTARTED = "ReplicaRestarted"
    NEW_ATTEMPT = "NewAttempt"
    BACKOFF = "Backoff"
    NOT_RESTARTING = "NotRestarting"
    NOT_SUSPENDED = "NotSuspended"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    QUEUED = "Queued"
    ADMITTED = "Admitted"
    GANG_RELEASED = "GangReleased"
    GANG_UNAVAILABLE = "GangUnavailable"
    STALLED = "Stalled"
    NOT_STALLED = "NotStalled"
    PROGRESS_UNKNOWN = "ProgressUnknown"
    STRAGGLING = "Straggling"
    NODE_AVOIDED = "NodeAvoided"
    REPLICAS_DIFFER = "ReplicasDiffer"
    MEMBERS_CHANGED = "MembersChanged"
    TENSORBOARD_FAILED = "TensorBoardFailed"
    TRAINING_SUCCEEDED = "TrainingSucceeded"

    @classmethod
    def recorded(cls, word: str, *, otherwise: Reason) -> Reason:
        """The reason that a status has; ``otherwise`` for a word that another version of the operator wrote."""
        return cls(word) if word in cls.__members__.values() else otherwise


def job_name_from(words: str) -> str:
    """A name for a job that is made of other words, such as the name of a folder or of a function. It leaves room for a
    suffix, and for the names of the replicas."""
    name = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:32].strip("-")
    return name if name[:1].isalpha() else f"job-{name}".strip("-")


DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""The name of a namespace, a container or a volume, which has 63 characters at most."""

DNS_SUBDOMAIN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""The name of a node, which has 253 characters at most."""

CONFIG_KEY: Final = "^[-._a-zA-Z0-9]+$"
"""The key of a ConfigMap or a Secret, which has 253 characters at most."""

LABEL_KEY: Final = (
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)
"""The key of a label, such as ``topology.kubernetes.io/rack``."""

DOMAIN_PATH: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/._~%!$&'()*+,;=:-]+$"
"""A domain and a path, as ``managedBy`` of a batch Job must be (kubernetes, IsDomainPrefixedPath)."""


def matches(pattern: str, value: object) -> bool:
    """Whether the whole text matches; ``pattern`` begins with ``^`` and ends with ``$``.

    To Python ``$`` is also the place before a last line break, to RE2 it is the end of the text.
    """
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), str(value)) is not None


def segment_problem(name: str) -> str:
    """Why a text cannot be the name of any object; empty if it can.

    A server would take an empty name, or ``.``, for the collection that holds the objects: to delete it deletes all of
    them. The rule is that of Kubernetes (apimachinery, IsValidPathSegmentName).
    """
    if not name:
        return "the name must not be empty: write that of one object"
    if name in {".", ".."} or "/" in name or "%" in name:
        return f"\"{name}\" cannot be the name of an object: it must not be '.' or '..', nor hold '/' or '%'"
    return ""


_MAX_NAMESPACE: Final = 63


def namespace_problem(name: str) -> str:
    """Why a text is not the name of a namespace; empty if it is one."""
    if len(name) <= _MAX_NAMESPACE and matches(DNS_LABEL, name):
        return ""
    return (
        f"\"{name}\" is not the name of a namespace: write up to {_MAX_NAMESPACE} lower-case letters, digits and '-', "
        "with a letter or digit at both ends"
    )
