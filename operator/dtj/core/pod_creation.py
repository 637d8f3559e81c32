"""The pods that a pass creates or has checked, their place in a gang included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from dtj.api.json import JsonObject
from dtj.api.spec import Gang
from dtj.core import node_losses
from dtj.core.actions import CreatePod
from dtj.core.admission import schedulers, workloads
from dtj.core.context import JobContext
from dtj.core.manifests.pod import PodRenderer
from dtj.core.observed import GangObject
from dtj.core.platform import Platform
from dtj.core.replicas import Replica


def creations(context: JobContext, wanted: Iterable[Replica]) -> Iterator[CreatePod]:
    """What creates the pods of these replicas."""
    render = _renderer(context, context.platform, context.gang_object)
    avoided = node_losses.avoided(context.job.status, context.now)

    def placed(replica: Replica) -> JsonObject:
        pod = render(replica)
        node_losses.avoid(pod, avoided)
        return pod

    return (CreatePod(context.name_of(replica), partial(placed, replica)) for replica in wanted)


@dataclass(frozen=True, slots=True)
class FirstPods:
    """The manifest of the first pod of each role, in TF_CONFIG's order; each is made when it is asked for.

    They fit the Pod Security Standard "restricted" if the namespace was found to enforce it, or if ``restricted``.
    Kueue has not chosen their nodes.
    """

    context: JobContext
    restricted: bool = False

    def __iter__(self) -> Iterator[JsonObject]:
        context = self.context
        platform = replace(context.platform, restricted=True) if self.restricted else context.platform
        render = _renderer(context, platform, None)
        return (render(Replica(role, 0)) for role in context.spec.roles())


def _renderer(context: JobContext, platform: Platform, workload: GangObject | None) -> Callable[[Replica], JsonObject]:
    """What makes a replica's manifest, its place in the gang included. ``workload`` says where Kueue admitted it to.

    A pod that comes back alone joins no group: the gang has started, and some members may have completed.
    """
    pods = PodRenderer(context.job, context.spec, platform, context.world)
    group = context.group(context.gang) if context.gang is not None else None

    def render(replica: Replica) -> JsonObject:
        pod = pods.render(replica)
        if group is None:
            return pod
        schedulers.prepare(group, pod)
        if replica not in context.replaced_alone:
            schedulers.join(group, pod)
        if group.api.gang is Gang.KUEUE and workload is not None:
            workloads.place(pod, replica.role, workload, context.observed.flavors)
        return pod

    return render
