"""The words that Kubernetes leaves on a pod that ended, and whose fault each of them means.

One table: the documents show it (docs/failure-modes.md), and :mod:`dtj.core.pod_failure` decides by it. Each word comes
with the file that writes it. Which of them a cluster uses depends on its version.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final


class PodFailureClass(StrEnum):
    """The classes of pod ends."""

    COMPLETED = "Completed"
    PREEMPTION = "Preemption"
    DISRUPTION = "Disruption"
    OUT_OF_MEMORY = "OutOfMemory"
    PEER_LOST = "PeerLost"
    USER_ERROR = "UserError"


class Field(StrEnum):
    """Where on a pod a word stands."""

    POD = "`status.reason` of the pod"
    CONTAINER = "`state.terminated.reason` of the main container"
    CONDITION = "reason of the condition `DisruptionTarget`"


@dataclass(frozen=True, slots=True)
class EndReason:
    """A word, where it stands, its class, what it means, and the source file that writes it.

    A word that ends with ``*`` stands for all that begin so.
    """

    field: Field
    word: str
    failure_class: PodFailureClass
    meaning: str
    source: str
    of_node: bool = False
    """Whether it is a fault of the node that the next pod may meet there again."""

    def matches(self, word: str) -> bool:
        """Whether ``word`` is this one."""
        return word.startswith(self.word[:-1]) if self.word.endswith("*") else word == self.word


_KUBELET: Final = "kubernetes pkg/kubelet"
_ADMISSION: Final = f"{_KUBELET}/lifecycle/predicate.go"
_HANDLERS: Final = f"{_KUBELET}/lifecycle/handlers.go"
_SHUTDOWN: Final = f"{_KUBELET}/nodeshutdown/nodeshutdown_manager.go"
_CONDITIONS: Final = "kubernetes staging/src/k8s.io/api/core/v1/types.go"

_POD, _CONTAINER, _CONDITION = Field.POD, Field.CONTAINER, Field.CONDITION
_NODE, _USER = PodFailureClass.DISRUPTION, PodFailureClass.USER_ERROR

END_REASONS: Final = (
    EndReason(_CONTAINER, "OOMKilled", PodFailureClass.OUT_OF_MEMORY, "over its memory limit",
              "containerd internal/cri/server/helpers.go"),
    EndReason(_CONTAINER, "ContainerStatusUnknown", _NODE, "the kubelet does not find the container any more: the node "
              "was reset, or its runtime wiped", f"{_KUBELET}/container/runtime.go", of_node=True),
    EndReason(_CONTAINER, "Unknown", _NODE, "with exit code 255: the runtime does not know how it ended, for the node "
              "or the runtime was reset", "containerd internal/cri/server/helpers.go", of_node=True),
    EndReason(_POD, "Evicted", _NODE, "the node ran low on memory, disk or processes; UserError where the message says "
              "that the pod exceeded a limit of its own", f"{_KUBELET}/eviction/eviction_manager.go"),
    EndReason(_POD, "Preempting", _NODE, "made room for a critical pod", f"{_KUBELET}/preemption/preemption.go"),
    EndReason(_POD, "Terminated", _NODE, "the node shuts down", _SHUTDOWN),
    EndReason(_POD, "NodeShutdown", _NODE, "not admitted: the node shuts down", _SHUTDOWN),
    EndReason(_POD, "NodeLost", _NODE, "the node does not answer",
              "kubernetes pkg/util/node/node.go", of_node=True),
    EndReason(_POD, "UnexpectedAdmissionError", _NODE, "not admitted: a device plugin failed, or went away",
              _ADMISSION, of_node=True),
    EndReason(_POD, "OutOf*", _NODE, "not admitted: the node has less cpu, memory, pods or devices than the scheduler "
              "believed", _ADMISSION, of_node=True),
    EndReason(_POD, "NodeAffinity", _NODE, "not admitted: the node's labels changed, or are not there yet after a "
              "restart of the kubelet", _ADMISSION),
    EndReason(_POD, "NodeName", _NODE, "not admitted: the node was renamed", _ADMISSION),
    EndReason(_POD, "NodePorts", _NODE, "not admitted: a host port is taken", _ADMISSION),
    EndReason(_POD, "TaintToleration", _NODE, "not admitted: the node is tainted with NoExecute", _ADMISSION),
    EndReason(_POD, "InvalidNodeInfo", _NODE, "not admitted: the kubelet does not know its node yet", _ADMISSION),
    EndReason(_POD, "UnknownReason", _NODE, "not admitted, no reason given", _ADMISSION),
    EndReason(_POD, "UnexpectedPredicateFailureType", _NODE, "not admitted, no reason given", _ADMISSION),
    EndReason(_POD, "TopologyAffinityError", _NODE, "not admitted: no NUMA node has room for all of it",
              f"{_KUBELET}/cm/topologymanager/topology_manager.go", of_node=True),
    EndReason(_POD, "SMTAlignmentError", _NODE, "not admitted: no whole cores are left",
              f"{_KUBELET}/cm/cpumanager/policy_static.go", of_node=True),
    EndReason(_POD, "DeadlineExceeded", _USER, "ran longer than `activeDeadlineSeconds` of the pod template",
              f"{_KUBELET}/active_deadline.go"),
    EndReason(_POD, "SysctlForbidden", _USER, "not admitted: the node does not allow a sysctl of the template",
              f"{_KUBELET}/sysctl/allowlist.go"),
    EndReason(_POD, "AppArmor", _USER, "not admitted: no such AppArmor profile", _HANDLERS),
    EndReason(_POD, "PodOS*", _USER, "not admitted: the template asks for another operating system", _ADMISSION),
    EndReason(_POD, "InitContainerRestartPolicyForbidden", _USER, "not admitted: the node does not know native "
              "sidecars", _ADMISSION),
    EndReason(_POD, "SupplementalGroupsPolicyNotSupported", _USER, "not admitted: the node lacks what the template "
              "asks for", _ADMISSION),
    EndReason(_POD, "PodLevelResourcesNotSupported", _USER, "the same", _HANDLERS),
    EndReason(_POD, "PodFeatureUnsupported", _USER, "the same", _HANDLERS),
    EndReason(_CONDITION, "PreemptionByScheduler", _NODE, "made room for a pod of higher priority", _CONDITIONS),
    EndReason(_CONDITION, "EvictionByEvictionAPI", _NODE, "`kubectl drain`, an autoscaler, a descheduler",
              "kubernetes pkg/registry/core/pod/storage/eviction.go"),
    EndReason(_CONDITION, "DeletionByTaintManager", _NODE, "the node is tainted with NoExecute, or does not answer",
              "kubernetes pkg/controller/tainteviction/taint_eviction.go"),
    EndReason(_CONDITION, "DeletionByPodGC", _NODE, "the node is gone",
              "kubernetes pkg/controller/podgc/gc_controller.go"),
    EndReason(_CONDITION, "TerminationByKubelet", _NODE, "node pressure, a shutdown, or a critical pod", _CONDITIONS),
)  # fmt: skip

UNKNOWN_EXIT: Final = ("Unknown", 255)
"""What containerd reports of a container whose end it did not see (unknownExitReason, unknownExitCode)."""

_BY_FIELD: Final = {field: tuple(each for each in END_REASONS if each.field is field) for field in Field}


@lru_cache(maxsize=128)
def class_of_pod_reason(word: str) -> PodFailureClass | None:
    """The class by ``status.reason`` of a pod, None where the word says nothing of it.

    The pods of a job say the same few words, and each is asked several times in a pass.
    """
    return next((each.failure_class for each in _BY_FIELD[Field.POD] if each.matches(word)), None)


def class_of_container_reason(word: str, exit_code: int) -> PodFailureClass | None:
    """The class by a container's ``state.terminated``, None where the word says nothing of it."""
    if word == UNKNOWN_EXIT[0] and exit_code != UNKNOWN_EXIT[1]:
        return None
    return next((each.failure_class for each in _BY_FIELD[Field.CONTAINER] if each.matches(word)), None)


def is_of_node(field: Field, word: str) -> bool:
    """Whether a word tells of a fault of the node."""
    return any(each.of_node and each.matches(word) for each in _BY_FIELD[field])
