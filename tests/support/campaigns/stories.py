"""What happens to a job, as short stories. Each leads to one end, whatever the operator is shown on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta

from builders import CLAIM_TEMPLATE, NOW, at
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Annotation, Condition, Label
from dtj.api.spec import Gang
from dtj.api.status import Progress
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.observed import SeenProgress, Straggler
from dtj.core.replicas import parse_indexes
from dtj.kube.gateway import JOBS, LOCAL_QUEUES, PODS, SERVICES
from dtj.kube.observed import resource_of
from support.campaigns.model_cluster import ModelCluster
from support.gang_worlds import kueue_condition
from support.virtual_time import loop_time

Story = Callable[[ModelCluster], Awaitable[None]]

API_OF = {gang: next(api for api in APIS if api.gang is gang) for gang in (Gang.KUEUE, Gang.VOLCANO)}


async def create_to_complete(cluster: ModelCluster) -> None:
    """A job runs, and completes."""
    cluster.submit(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    await cluster.runs("worker-0", "worker-1")
    await completes(cluster, "worker-0")


async def completed() -> ModelCluster:
    """A cluster whose one job has completed. Its operator has stopped."""
    cluster = ModelCluster()
    cluster.start_operator()
    await create_to_complete(cluster)
    await cluster.quiet()
    await cluster.close()
    return cluster


async def worker_fails(cluster: ModelCluster) -> None:
    """A worker fails, and all start again."""
    cluster.submit()
    await cluster.runs("worker-0", "worker-1")
    cluster.end_pod("worker-1", 3, message="lost my way")
    await cluster.runs("worker-0-r1", "worker-1-r1")
    await completes(cluster, "worker-0-r1")


async def chief_fails_for_good(cluster: ModelCluster) -> None:
    """The chief fails, and no restart is left."""
    cluster.submit(roles={"chief": 1, "worker": 1}, runPolicy={"backoffLimit": 0})
    await cluster.runs("chief-0", "worker-0")
    cluster.end_pod("chief-0", 1)
    await cluster.has(Condition.FAILED)


async def suspend_and_resume(cluster: ModelCluster) -> None:
    """A job is suspended while it runs, is resumed, and completes."""
    cluster.submit()
    await cluster.runs("worker-0", "worker-1")
    cluster.change({"runPolicy": {"suspend": True}})
    await nothing_is_left(cluster)
    cluster.change({"runPolicy": {"suspend": False}})
    await cluster.runs("worker-0-r1", "worker-1-r1")
    await completes(cluster, "worker-0-r1")


async def delete_and_create_again(cluster: ModelCluster) -> None:
    """A job that runs is deleted, and another of the same name created at once."""
    await is_created_again(cluster, cluster.submit)
    await completes(cluster, "worker-0")


async def is_created_again(cluster: ModelCluster, create: Callable[[], Job]) -> None:
    """Two workers run, are deleted with their job, and run again as those of another."""
    create()
    await cluster.runs("worker-0", "worker-1")
    cluster.delete(cluster.jobs)
    second = create()

    def owned() -> bool:
        pods = [cluster.api.body(PODS, pod) for pod in cluster.api.names(PODS)]
        return len(pods) == 2 and all(dig(pod, "metadata", "ownerReferences", 0, "uid") == second.uid for pod in pods)

    await cluster.until("the pods are the second job's", owned)
    await cluster.runs("worker-0", "worker-1")


async def last_error_allowed(cluster: ModelCluster) -> None:
    """A worker fails twice, and one restart is allowed."""
    cluster.submit(runPolicy={"backoffLimit": 1})
    for replica in ("worker-0", "worker-0-r1"):
        await cluster.until(f"{replica} runs", lambda replica=replica: f"digits-{replica}" in cluster.live_pods())  # type: ignore[misc]
        await cluster.is_in("Running")
        cluster.end_pod(replica, 3)
    await cluster.has(Condition.FAILED)


async def drain(cluster: ModelCluster) -> None:
    """A node is drained: what its worker and its peer leave with is no error, and one disruption is charged."""
    cluster.submit(runPolicy={"backoffLimit": 0})
    await cluster.runs("worker-0", "worker-1")
    cluster.stop_code = 1
    cluster.drain("worker-1")
    await cluster.runs("worker-0-r1", "worker-1-r1")
    await completes(cluster, "worker-0-r1")


async def chief_alone_until_a_server_is_lost(cluster: ModelCluster) -> None:
    """A ParameterServer job's chief comes back alone twice; then a server is lost, and all start again.

    Pods that are asked to stop leave with 1: with 143, one that is seen only after its end would be free of charge.
    """
    cluster.stop_code = 1
    cluster.submit(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1})
    await cluster.runs("chief-0", "worker-0", "ps-0")
    for number in (1, 2):
        cluster.drain("chief-0" if number == 1 else "chief-0-r1")
        await cluster.runs(f"chief-0-r{number}", "worker-0", "ps-0")
    cluster.drain("ps-0")
    await cluster.runs("chief-0-r3", "worker-0-r1", "ps-0-r1")
    await completes(cluster, "chief-0-r3")


async def tensorboard(cluster: ModelCluster) -> None:
    """A job with TensorBoard, which is lost once and goes some time after the end."""
    cluster.submit(checkpoint={"claimTemplate": CLAIM_TEMPLATE}, tensorBoard={"ttlSeconds": 60})
    await cluster.runs("worker-0", "worker-1")
    await cluster.until("TensorBoard runs", lambda: cluster.phase("digits-tensorboard") == "Running")
    cluster.api.remove(PODS, "digits-tensorboard")
    await cluster.until("TensorBoard runs again", lambda: cluster.phase("digits-tensorboard") == "Running")
    await completes(cluster, "worker-0")
    await cluster.until("TensorBoard is gone", lambda: not cluster.there(PODS, "digits-tensorboard"))


async def scale(cluster: ModelCluster) -> None:
    """A job is scaled up while it runs, and down again."""
    cluster.submit(elastic={"minReplicas": 1, "maxReplicas": 4})
    await cluster.runs("worker-0", "worker-1")
    cluster.change({"replicaSpecs": {"worker": {"replicas": 3}}})
    await cluster.runs("worker-0-r1", "worker-1-r1", "worker-2-r1")
    cluster.change({"replicaSpecs": {"worker": {"replicas": 1}}})
    await cluster.runs("worker-0-r2")
    await completes(cluster, "worker-0-r2")


async def members_change(cluster: ModelCluster) -> None:
    """An elastic job whose launchers exchange the members is scaled up, loses a worker for a while, and is scaled down:
    no other pod is touched."""
    cluster.stop_code = 1  # with 143, a pod that is seen only after its end would be free of charge
    cluster.submit(elastic={"minReplicas": 1, "maxReplicas": 4, "shrinkAfterSeconds": 5})
    cluster.meanwhile(launchers(cluster))
    await cluster.runs("worker-0", "worker-1")
    await cluster.until("the launchers report", lambda: (p := cluster.status().progress) is not None and p.world == 0)
    cluster.change({"replicaSpecs": {"worker": {"replicas": 3}}})
    await cluster.until("a worker joins", lambda: members(cluster, 3) == {"0-2"})
    cluster.starts = False
    cluster.drain("worker-1")
    await cluster.until("the others go on without it", lambda: members(cluster, 3) == {"0,2"})
    cluster.starts = True
    cluster.start_pod("digits-worker-1-r1")
    await cluster.until("it is back", lambda: members(cluster, 3) == {"0-2"})
    await cluster.runs("worker-0", "worker-1-r1", "worker-2")
    cluster.change({"replicaSpecs": {"worker": {"replicas": 2}}})
    await cluster.runs("worker-0", "worker-1-r1")
    assert members(cluster, 2) == {"0-1"}
    assert cluster.status().attempt == 1
    await completes(cluster, "worker-0")


async def workers_of_servers_come_and_go(cluster: ModelCluster) -> None:
    """A ParameterServer job whose launchers exchange the members is scaled up, loses a worker, and is scaled down: the
    loss changes no members, and no other pod is touched."""
    cluster.stop_code = 1  # with 143, a pod that is seen only after its end would be free of charge
    bounds: JsonObject = {"minReplicas": 1, "maxReplicas": 4, "shrinkAfterSeconds": 5}
    cluster.submit(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1}, elastic=bounds)
    cluster.meanwhile(launchers(cluster))
    await cluster.runs("chief-0", "worker-0", "ps-0")
    await cluster.until("the launchers report", lambda: (p := cluster.status().progress) is not None and p.world == 0)
    cluster.change({"replicaSpecs": {"worker": {"replicas": 3}}})
    await cluster.until("workers join", lambda: members(cluster, 4) == {"0-2"})
    cluster.starts = False
    cluster.drain("worker-1")
    await cluster.until("it has a pod again", lambda: cluster.there(PODS, "digits-worker-1-r1"))
    await asyncio.sleep(10.0)  # twice as long as the workers of a collective wait
    assert members(cluster, 4) == {"0-2"}
    cluster.starts = True
    cluster.start_pod("digits-worker-1-r1")
    await cluster.runs("chief-0", "worker-0", "worker-1-r1", "worker-2", "ps-0")
    cluster.change({"replicaSpecs": {"worker": {"replicas": 2}}})
    await cluster.runs("chief-0", "worker-0", "worker-1-r1", "ps-0")
    assert members(cluster, 3) == {"0-1"}
    assert cluster.status().attempt == 1
    await completes(cluster, "chief-0")


async def a_spare_takes_over(cluster: ModelCluster) -> None:
    """An elastic job loses a worker, whose place its spare takes; the next pod of that worker is the spare then."""
    cluster.stop_code = 1
    cluster.submit(elastic={"minReplicas": 2, "maxReplicas": 2, "spares": 1})
    cluster.meanwhile(launchers(cluster))
    await cluster.runs("worker-0", "worker-1", "worker-2")
    await cluster.until("the launchers report", lambda: (p := cluster.status().progress) is not None and p.world == 0)
    cluster.starts = False
    cluster.drain("worker-1")
    await cluster.until("the spare trains", lambda: members(cluster, 3) == {"0,2"})
    cluster.starts = True
    cluster.start_pod("digits-worker-1-r1")
    await cluster.runs("worker-0", "worker-1-r1", "worker-2")
    assert members(cluster, 3) == {"0,2"}
    assert cluster.status().attempt == 1
    await completes(cluster, "worker-0")


async def a_straggler_is_replaced(cluster: ModelCluster) -> None:
    """A worker of an elastic job is slow for good. A spare takes its place, and it is the spare then, in a new pod."""
    cluster.stop_code = 1
    cluster.submit(elastic={"maxReplicas": 2, "spares": 1, "onStraggler": "Replace"})
    cluster.meanwhile(launchers(cluster, slow="worker-1"))
    await cluster.until("the spare trains", lambda: members(cluster, 3) == {"0,2"})
    await cluster.runs("worker-0", "worker-1-r1", "worker-2")
    assert (cluster.status().attempt, cluster.status().restarts.total) == (1, 0)
    await completes(cluster, "worker-0")


def members(cluster: ModelCluster, count: int) -> set[str]:
    """What the pods that train know of the workers among the members, if there are so many pods that do not go."""
    known = [
        json.loads(world)["members"]["worker"]
        for pod in cluster.api.names(PODS)
        if dig(body := cluster.api.body(PODS, pod), "metadata", "deletionTimestamp") is None
        and dig(body, "status", "phase") not in ("Succeeded", "Failed")
        and (world := text(dig(body, "metadata", "annotations", Annotation.WORLD)))
    ]
    return set(known) if len(known) == count else set()


async def launchers(cluster: ModelCluster, *, slow: str = "") -> None:
    """What the operator hears of the pods: the first member trains, who is none is ready to join, and this one is
    ``slow``."""
    while not cluster.status().terminal:
        await asyncio.sleep(1.0)
        operator, job = cluster.operator, Job.from_object(cluster.api.body(JOBS, "digits"))
        if operator is None:
            continue
        known = {
            pod: json.loads(world)["members"]
            for pod in sorted(cluster.live_pods())
            if (world := text(dig(cluster.api.body(PODS, pod), "metadata", "annotations", Annotation.WORLD)))
        }
        labels = {pod: dig(cluster.api.body(PODS, pod), "metadata", "labels") for pod in known}
        inside = [
            pod
            for pod, listed in known.items()
            if int(text(dig(labels[pod], Label.INDEX))) in parse_indexes(listed[text(dig(labels[pod], Label.ROLE))])
        ]
        uids = {pod: text(dig(cluster.api.body(PODS, pod), "metadata", "uid")) for pod in known}
        cache = operator.engine.state.caches.of(job.uid)
        before = (cache.progress.pod_uid if cache.progress is not None else "", cache.waiting)
        if inside:
            told = Progress(phase="Training", world=0)
            cache.progress = SeenProgress(uids[inside[0]], told, NOW + timedelta(seconds=loop_time()))
        cache.waiting = frozenset(uids[pod] for pod in known if pod not in inside)
        cache.step_timings.stragglers = (Straggler(slow, 2.0),) if slow else ()
        if before != (cache.progress.pod_uid if cache.progress is not None else "", cache.waiting):
            operator.engine.queue.add(job.key)


async def change_while_suspended(cluster: ModelCluster) -> None:
    """A job is suspended, and gets another template and is resumed, in two writes at once."""
    cluster.submit()
    await cluster.runs("worker-0", "worker-1")
    cluster.change({"runPolicy": {"suspend": True}})
    await nothing_is_left(cluster)
    container: JsonObject = {"name": "trainer", "image": "example/trainer:2"}
    cluster.change({"template": {"spec": {"containers": [container]}}})
    cluster.change({"runPolicy": {"suspend": False}})
    await cluster.runs("worker-0-r1", "worker-1-r1")
    images = {
        str(objects(dig(cluster.api.body(PODS, pod), "spec", "containers"))[0]["image"]) for pod in cluster.live_pods()
    }
    assert images == {"example/trainer:2"}, f"the pods run {images}"
    await completes(cluster, "worker-0-r1")


async def volcano(cluster: ModelCluster) -> None:
    """The pods of a job are scheduled together by Volcano; one is lost, all start again, and the PodGroup goes."""
    cluster.knows(resource_of(API_OF[Gang.VOLCANO]))
    cluster.submit(runPolicy={"scheduling": {"gang": "Volcano"}})
    await loses_a_member_of_its_gang(cluster)


async def loses_a_member_of_its_gang(cluster: ModelCluster) -> None:
    """The life of a job of two workers in a gang of Volcano."""
    await cluster.runs("worker-0", "worker-1")
    cluster.stop_code = 1  # with 143, a pod that is seen only after its end would be free of charge
    cluster.drain("worker-0")
    await cluster.runs("worker-0-r1", "worker-1-r1")
    await completes(cluster, "worker-0-r1")
    groups = resource_of(API_OF[Gang.VOLCANO])
    await cluster.until("the PodGroup is gone", lambda: not cluster.api.names(groups))


async def kueue(cluster: ModelCluster) -> None:
    """Kueue admits a job, takes its quota back, and admits it again."""
    cluster.knows(resource_of(API_OF[Gang.KUEUE]))
    cluster.submit(runPolicy={"scheduling": {"gang": "Kueue", "queue": "team-a"}})
    await is_admitted_twice(cluster)


async def default_queue(cluster: ModelCluster) -> None:
    """The same in the default queue, for a job that names none."""
    workloads = resource_of(API_OF[Gang.KUEUE])
    cluster.api.put(LOCAL_QUEUES, {"metadata": {"name": "default"}})
    cluster.knows(workloads)
    cluster.submit(runPolicy={})
    await is_admitted_twice(cluster)
    assert dig(cluster.api.body(workloads, "digits"), "spec", "queueName") == "default"


async def is_admitted_twice(cluster: ModelCluster, *, again: str = "-r1") -> None:
    """Kueue's part. ``again`` is what the names of the pods end in the second time."""
    workloads = resource_of(API_OF[Gang.KUEUE])

    def says(**conditions: str) -> None:
        found = [{**kueue_condition(*each), "lastTransitionTime": at(loop_time())} for each in conditions.items()]
        cluster.api.merge(workloads, "digits", {"status": {"conditions": [*found], "admission": _ADMISSION}})

    await cluster.until("there is a Workload", lambda: cluster.there(workloads))
    says(QuotaReserved="True", Admitted="True")
    await cluster.runs("worker-0", "worker-1")
    says(QuotaReserved="True", Admitted="True", Evicted="True")
    await cluster.until("no pod is left", lambda: not cluster.api.names(PODS))
    await cluster.until(
        "the quota is given back", lambda: dig(cluster.api.body(workloads, "digits"), "status", "admission") is None
    )
    says(QuotaReserved="True", Admitted="True")
    await cluster.runs(f"worker-0{again}", f"worker-1{again}")
    await completes(cluster, f"worker-0{again}")


_ADMISSION: JsonObject = {"clusterQueue": "all", "podSetAssignments": [{"name": "worker", "count": 2}]}


async def ttl(cluster: ModelCluster) -> None:
    """A job is deleted some time after its end."""
    cluster.submit(runPolicy={"ttlSecondsAfterFinished": 20})
    await cluster.runs("worker-0", "worker-1")
    await completes(cluster, "worker-0")
    await cluster.until("the job is gone", lambda: not cluster.there(JOBS))
    await cluster.until("its pods are gone", lambda: not cluster.api.names(PODS))


async def ttl_is_extended(cluster: ModelCluster) -> None:
    """A job that would be deleted in a moment is to be kept for a year."""
    cluster.submit(runPolicy={"ttlSecondsAfterFinished": 20})
    await cluster.runs("worker-0", "worker-1")
    await completes(cluster, "worker-0")
    await asyncio.sleep(18.0)
    cluster.change({"runPolicy": {"ttlSecondsAfterFinished": 365 * 86400}})


async def active_deadline(cluster: ModelCluster) -> None:
    """A job runs for too long."""
    cluster.submit(runPolicy={"activeDeadlineSeconds": 60})
    await cluster.runs("worker-0", "worker-1")
    await cluster.has(Condition.FAILED)


async def start_deadline(cluster: ModelCluster) -> None:
    """A job's pods find no node."""
    cluster.starts = False
    cluster.submit(runPolicy={"startDeadlineSeconds": 60})
    await cluster.has(Condition.FAILED)


async def start_deadline_after_a_pause(cluster: ModelCluster) -> None:
    """A job is suspended, and when it is resumed its pods find no node."""
    cluster.submit(runPolicy={"startDeadlineSeconds": 60})
    await cluster.runs("worker-0", "worker-1")
    cluster.change({"runPolicy": {"suspend": True}})
    await nothing_is_left(cluster)
    cluster.starts = False
    cluster.change({"runPolicy": {"suspend": False}})
    await cluster.has(Condition.FAILED)


STORIES: dict[str, Story] = {
    story.__name__.replace("_", "-"): story
    for story in (
        create_to_complete,
        worker_fails,
        chief_fails_for_good,
        suspend_and_resume,
        delete_and_create_again,
        last_error_allowed,
        drain,
        chief_alone_until_a_server_is_lost,
        tensorboard,
        scale,
        members_change,
        workers_of_servers_come_and_go,
        a_spare_takes_over,
        a_straggler_is_replaced,
        change_while_suspended,
        volcano,
        kueue,
        default_queue,
        ttl,
        ttl_is_extended,
        active_deadline,
        start_deadline,
        start_deadline_after_a_pause,
    )
}


async def nothing_is_left(cluster: ModelCluster) -> None:
    """The job is suspended, and its pods and its Service are gone."""
    await cluster.is_in("Suspended")
    await cluster.until("no pod is left", lambda: not cluster.api.names(PODS))
    await cluster.until("no Service is left", lambda: not cluster.api.names(SERVICES))


async def completes(cluster: ModelCluster, replica: str) -> None:
    """This replica's success is the job's."""
    cluster.end_pod(replica, 0)
    await cluster.has(Condition.COMPLETE)
