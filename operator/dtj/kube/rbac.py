"""The rights that the operator uses, and for what. Neither more nor less: tests compare the chart's roles with this
table, and the audit log of a running operator with the chart's roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dtj.api.spec import Gang
from dtj.kube.gateway import (
    CLAIMS,
    CLUSTER_QUEUES,
    CONFIG_MAPS,
    EVENTS,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
    TFJOBS,
    WORKLOAD_PRIORITIES,
    WORKLOADS,
    Resource,
)
from dtj.kube.lease import LEASES

CRDS: Final = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """What may be done with a resource; ``why`` is for the reader of the documents."""

    resource: Resource
    verbs: tuple[str, ...]
    why: str
    subresource: str = ""

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.resource.group

    @property
    def path(self) -> str:
        """The resource as a role names it."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


NAMESPACE_RULES: Final = (
    PolicyRule(JOBS, ("list", "watch"), "to know the jobs"),
    PolicyRule(JOBS, ("patch",), "to write their status", subresource="status"),
    PolicyRule(JOBS, ("delete",), "for runPolicy.ttlSecondsAfterFinished"),
    PolicyRule(PODS, ("list", "watch"), "to observe the replicas"),
    PolicyRule(PODS, ("create", "delete"), "to start and stop replicas"),
    PolicyRule(PODS, ("patch",), "to tell the replicas of an elastic job, by an annotation, who trains with them"),
    PolicyRule(
        SERVICES, ("list", "watch", "create", "patch"), "to give the replicas of a job, and of each attempt, names"
    ),
    PolicyRule(SERVICES, ("delete",), "when a job ends or is suspended"),
    PolicyRule(CLAIMS, ("list", "watch", "create"), "for checkpoint.claimTemplate"),
    PolicyRule(CONFIG_MAPS, ("create", "delete"), "to give the replicas of a large job their addresses"),
    PolicyRule(CONFIG_MAPS, ("get",), "to see, before one of these is used or deleted, whether the job owns it"),
    PolicyRule(PODS, ("get",), "to find objects whose name a job needs"),
    PolicyRule(SERVICES, ("get",), "to find objects whose name a job needs"),
    PolicyRule(CLAIMS, ("get",), "to find objects whose name a job needs"),
    PolicyRule(EVENTS, ("create", "patch"), "to tell users what happens, counting instead of repeating"),
    PolicyRule(EVENTS, ("list",), "to say why a pod does not start of which its status is silent, such as a volume"),
)
"""Needed in each namespace whose jobs are run: in all of them, or in those that are named."""

FOR_NETWORK_POLICIES: Final = (
    PolicyRule(
        NETWORK_POLICIES,
        ("get", "list", "watch", "create", "patch", "delete"),
        "to let nobody but a job's own pods, and whom the settings name, connect to its pods",
    ),
)
"""Needed besides in each namespace whose jobs are run, if jobs get a NetworkPolicy each."""

FOR_TFJOBS: Final = (
    PolicyRule(TFJOBS, ("list", "watch"), "to know the TFJobs"),
    PolicyRule(TFJOBS, ("patch",), "to write their status", subresource="status"),
    PolicyRule(TFJOBS, ("delete",), "for runPolicy.ttlSecondsAfterFinished"),
)
"""Needed besides in each namespace whose jobs are run, if TFJobs are run."""

_NATIVE: Final = Resource("scheduling.k8s.io/v1beta1", "PodGroup", "podgroups")
_TO_GANG: Final = ("get", "list", "watch", "create", "delete")
_WHY: Final = "to tell the scheduler, or the queue, which pods belong together"

FOR_GANGS: Final[dict[str, tuple[PolicyRule, ...]]] = {
    Gang.KUEUE: (
        PolicyRule(WORKLOADS, _TO_GANG, _WHY),
        PolicyRule(
            WORKLOADS,
            ("patch",),
            "to become the owner of a Workload that MultiKueue has made for a job, and to change its priority",
        ),
        PolicyRule(
            WORKLOADS,
            ("patch",),
            "to report whether the pods are ready and how the job ended, and to give back quota",
            subresource="status",
        ),
        PolicyRule(LOCAL_QUEUES, ("get",), "to find the default queue of a namespace"),
    ),
    Gang.VOLCANO: (PolicyRule(Resource("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups"), _TO_GANG, _WHY),),
    Gang.COSCHEDULING: (PolicyRule(Resource("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups"), _TO_GANG, _WHY),),
    Gang.NATIVE: (
        PolicyRule(_NATIVE, _TO_GANG, _WHY),
        PolicyRule(_NATIVE, ("patch",), "to tell the scheduler that the number of pods has changed"),
    ),
}
"""Needed besides in each namespace whose jobs are run, by scheduler. A role does not name versions."""

FOR_KUEUE: Final = (
    PolicyRule(
        FLAVORS,
        ("get",),
        "to send pods where Kueue admitted them to; without it none starts",
    ),
    PolicyRule(
        WORKLOAD_PRIORITIES,
        ("get",),
        "to queue a job with the priority that its label names; without it such a job does not start",
    ),
    PolicyRule(
        CLUSTER_QUEUES,
        ("get",),
        "to say in the status of a job why its queue admits none",
    ),
)
"""Needed in the cluster where Kueue is used."""

IN_THE_CLUSTER: Final = (PolicyRule(CRDS, ("list", "watch"), "to notice that the CRD is installed or changed"),)
"""Needed besides by an operator for all namespaces."""

LEADER_ELECTION_RULES: Final = (
    PolicyRule(LEASES, ("create",), "to stand for election the first time"),
    PolicyRule(LEASES, ("get", "patch"), "to stand by, to lead and to step down; of its own lease only"),
)
"""Needed in the operator's own namespace."""
