"""What happens to a TFJob, as short stories; and the cluster that a story of any kind of jobs needs."""

from __future__ import annotations

from dataclasses import replace

from bad_tfjobs import container, role, tfjob
from builders import at
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.kueue import QUEUE
from dtj.api.names import Condition
from dtj.api.spec import Gang
from dtj.api.tfjob.form import TFJOB
from dtj.core.platform import PLATFORM_OF_TFJOBS
from dtj.kube.gateway import PODS, SERVICES
from dtj.kube.observed import resource_of
from support.campaigns.model_cluster import ModelCluster
from support.campaigns.stories import (
    API_OF,
    STORIES,
    Story,
    completes,
    is_admitted_twice,
    is_created_again,
    loses_a_member_of_its_gang,
    nothing_is_left,
)
from support.virtual_time import loop_time


def submit(cluster: ModelCluster, restarts: str = "OnFailure", **counts: int) -> Job:
    """Create a TFJob with these roles; its clean-up leaves no pod that runs."""
    roles = {kind: role(count, restartPolicy=restarts) for kind, count in (counts or {"Worker": 2}).items()}
    return cluster.create(tfjob("digits", run_policy={"cleanPodPolicy": "Running"}, **roles))


async def can_be_reached(cluster: ModelCluster) -> None:
    """Each Service selects one pod that runs: the latest of its replica."""

    def holds() -> bool:
        running = cluster.live_pods() | {pod for pod in cluster.api.names(PODS) if _runs(cluster, pod)}
        labels = {pod: object_at(object_at(cluster.api.body(PODS, pod), "metadata"), "labels") for pod in running}
        selectors = [dig(cluster.api.body(SERVICES, each), "spec", "selector") for each in cluster.api.names(SERVICES)]
        selected = [
            [pod for pod in running if isinstance(each, dict) and each.items() <= labels[pod].items()]
            for each in selectors
        ]
        return all(len(pods) == 1 for pods in selected) and {pod for pods in selected for pod in pods} == running

    await cluster.until("each Service selects one pod", holds)


def _runs(cluster: ModelCluster, pod: str) -> bool:
    return dig(cluster.api.body(PODS, pod), "status", "phase") == "Running"


async def succeeds(cluster: ModelCluster) -> None:
    """The chief's success is the job's, and all others stop."""
    submit(cluster, Chief=1, Worker=2, PS=1)
    await cluster.runs("chief-0", "worker-0", "worker-1", "ps-0")
    await can_be_reached(cluster)
    await completes(cluster, "chief-0")


async def comes_back_alone(cluster: ModelCluster) -> None:
    """Beside servers a worker fails, and then is drained: each time it comes back alone, at the same address."""
    cluster.stop_code = 1
    submit(cluster, Chief=1, Worker=2, PS=1)
    await cluster.runs("chief-0", "worker-0", "worker-1", "ps-0")
    cluster.end_pod("worker-1", 3)
    await cluster.runs("chief-0", "worker-0", "worker-1-r1", "ps-0")
    cluster.drain("worker-1-r1")
    await cluster.runs("chief-0", "worker-0", "worker-1-r2", "ps-0")
    await can_be_reached(cluster)
    await completes(cluster, "chief-0")


async def trainers_start_again(cluster: ModelCluster) -> None:
    """A worker fails, and all start again."""
    submit(cluster)
    await cluster.runs("worker-0", "worker-1")
    cluster.end_pod("worker-1", 3, message="lost my way")
    await cluster.runs("worker-0-r1", "worker-1-r1")
    await can_be_reached(cluster)
    await completes(cluster, "worker-0-r1")


async def fails_by_its_exit_code(cluster: ModelCluster) -> None:
    """A worker ends with a code that no restart can help."""
    submit(cluster, restarts="ExitCode")
    await cluster.runs("worker-0", "worker-1")
    cluster.end_pod("worker-1", 3)
    await cluster.has(Condition.FAILED)


async def suspended_and_resumed(cluster: ModelCluster) -> None:
    """A job starts again, is suspended, and is resumed with the first names of its pods."""
    submit(cluster)
    await cluster.runs("worker-0", "worker-1")
    cluster.end_pod("worker-1", 3)
    await cluster.runs("worker-0-r1", "worker-1-r1")
    cluster.change({"runPolicy": {"suspend": True}})
    await nothing_is_left(cluster)
    await cluster.until("the first names are free", lambda: cluster.status().first_attempt == cluster.status().attempt)
    cluster.change({"runPolicy": {"suspend": False}})
    await cluster.runs("worker-0", "worker-1")
    await can_be_reached(cluster)
    await completes(cluster, "worker-0")


async def scaled(cluster: ModelCluster) -> None:
    """A job gets more workers while it runs, and then fewer."""
    submit(cluster)
    await cluster.runs("worker-0", "worker-1")
    cluster.change({"tfReplicaSpecs": {"Worker": {"replicas": 3}}})
    await cluster.runs("worker-0-r1", "worker-1-r1", "worker-2-r1")
    await can_be_reached(cluster)
    cluster.change({"tfReplicaSpecs": {"Worker": {"replicas": 1}}})
    await cluster.runs("worker-0-r2")
    await can_be_reached(cluster)
    await completes(cluster, "worker-0-r2")


async def deleted_and_created_again(cluster: ModelCluster) -> None:
    """A job that runs is deleted, and another of the same name created at once."""
    await is_created_again(cluster, lambda: submit(cluster))
    await can_be_reached(cluster)
    await completes(cluster, "worker-0")


async def in_a_gang(cluster: ModelCluster) -> None:
    """The pods of a job are scheduled together; one is drained, all start again, and the PodGroup goes."""
    cluster.knows(resource_of(API_OF[Gang.VOLCANO]))
    submit(cluster)
    await loses_a_member_of_its_gang(cluster)


async def in_a_queue(cluster: ModelCluster) -> None:
    """Kueue admits a job, takes its quota back, and admits it again."""
    cluster.knows(resource_of(API_OF[Gang.KUEUE]))
    body = tfjob("digits", run_policy={"cleanPodPolicy": "Running"}, Worker=role(2, restartPolicy="OnFailure"))
    object_at(body, "metadata")["labels"] = {QUEUE: "team-a"}
    cluster.create(body)
    await is_admitted_twice(cluster, again="")


def run_by_kubeflow(cluster: ModelCluster) -> None:
    """Kubeflow's operator has made the pods and Services of a TFJob, and they run."""
    now = at(loop_time())
    policy: JsonObject = {"cleanPodPolicy": "Running"}
    body = tfjob("digits", run_policy=policy, Worker=role(2, restartPolicy="ExitCode"))
    told: list[JsonObject] = [
        {"type": kind, "status": "True", "reason": f"TFJob{kind}", "message": "", "lastTransitionTime": now}
        for kind in ("Created", "Running")
    ]
    job = cluster.create({**body, "status": {"startTime": now, "conditions": [*told]}})
    for index in (0, 1):
        name, labels = f"digits-worker-{index}", TFJOB.labels("digits", job.uid)
        labels |= {TFJOB.role_label: "worker", TFJOB.index_label: str(index)}
        metadata: JsonObject = {"name": name, "labels": labels, "ownerReferences": [job.owner_reference()]}
        status: JsonObject = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "tensorflow", "state": {"running": {"startedAt": now}}}],
        }
        pod_spec: JsonObject = {"nodeName": "node-1", "restartPolicy": "Never", "containers": [container()]}
        cluster.api.put(PODS, {"metadata": metadata, "spec": pod_spec, "status": status})
        service_spec: JsonObject = {"clusterIP": "None", "selector": labels}
        cluster.api.put(SERVICES, {"metadata": metadata, "spec": service_spec})


async def taken_over(cluster: ModelCluster) -> None:
    """A job that Kubeflow's operator has begun runs on, starts again when a worker fails, and succeeds."""
    await cluster.runs("worker-0", "worker-1")
    assert not [each for each in cluster.api.effects if each.plural == PODS.plural], "its pods run on"
    cluster.end_pod("worker-1", 137)
    await cluster.runs("worker-0-r1", "worker-1-r1")
    await can_be_reached(cluster)
    await completes(cluster, "worker-0-r1")


TFJOB_STORIES: dict[str, Story] = {
    f"tfjob-{story.__name__.replace('_', '-')}": story
    for story in (
        succeeds,
        comes_back_alone,
        trainers_start_again,
        fails_by_its_exit_code,
        suspended_and_resumed,
        scaled,
        deleted_and_created_again,
        in_a_gang,
        in_a_queue,
        taken_over,
    )
}
EVERY_STORY: dict[str, Story] = {**STORIES, **TFJOB_STORIES}

_PLATFORMS = {
    "tfjob-in-a-gang": replace(PLATFORM_OF_TFJOBS, gang_of_tfjobs=Gang.VOLCANO),
    "tfjob-in-a-queue": replace(PLATFORM_OF_TFJOBS, queues_tfjobs=True),
}


def cluster_of(story: str) -> ModelCluster:
    """A cluster as it is before a story begins."""
    if story in STORIES:
        return ModelCluster()
    cluster = ModelCluster(TFJOB, _PLATFORMS.get(story) or PLATFORM_OF_TFJOBS)
    if story == "tfjob-taken-over":
        run_by_kubeflow(cluster)
    return cluster
