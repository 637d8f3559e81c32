"""Sidecars on a real node: what a webhook puts before the trainer's container decides nothing, and holds nothing."""

from __future__ import annotations

from pathlib import Path

from builders import manifest
from dtj.api.json import JsonObject, dig
from support.cluster_jobs import ClusterJobs
from support.injector import LABEL, injecting
from testbed import NodeCluster, tiny_image
from testbed.processes import wait_until


def container(name: str, script: str, **fields: str) -> JsonObject:
    image: JsonObject = {"name": name, "image": tiny_image.NAME, "imagePullPolicy": "Never"}
    return {**image, "command": ["sh", "-c", script], **fields}


FOR_EVER = "trap exit TERM; while :; do sleep 1; done"
SIDECARS: dict[str, JsonObject] = {
    "endless": container("istio-proxy", FOR_EVER),
    "late": container("istio-proxy", "sleep 2; exit 143"),
    "native": container("istio-proxy", FOR_EVER, restartPolicy="Always"),
}


def job(name: str, sidecar: str, script: str) -> JsonObject:
    """A job of one replica whose only container has a name of its own, so that a sidecar could be taken for it."""
    template: JsonObject = {
        "metadata": {"labels": {LABEL: sidecar}},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": [container("tensorflow", script)]},
    }
    policy = {"backoffLimit": 0}
    return manifest(name, strategy="OneDevice", roles={"worker": 1}, template=template, runPolicy=policy)


def test_sidecars_that_are_injected_first_decide_no_end_and_hold_no_job(
    node_testbed: NodeCluster, jobs: ClusterJobs, tmp_path: Path
) -> None:
    with injecting(node_testbed, jobs.namespace, SIDECARS, tmp_path / "pki"):
        for sidecar in SIDECARS:
            jobs.submit(job(f"{sidecar}-0", sidecar, "exit 0"))
        jobs.submit(job("endless-3", "endless", "echo no such flower; exit 3"))
        for sidecar in SIDECARS:
            jobs.await_condition(f"{sidecar}-0", "Complete")
        jobs.await_condition("endless-3", "Failed")
    for sidecar in SIDECARS:
        assert jobs.job(f"{sidecar}-0")["status"]["restarts"] == {"total": 0}
    cause = jobs.job("endless-3")["status"]["rootCause"]
    assert (cause["exitCode"], cause["message"]) == (3, "no such flower")
    # An endless sidecar is stopped, and its pod's log goes with it; a pod that ends by itself is kept.
    ends = {"late-0-worker-0": "Failed", "native-0-worker-0": "Succeeded"}
    wait_until(
        lambda: {name: pod["status"]["phase"] for name, pod in jobs.pods().items()} == ends, what=f"the pods {ends}"
    )
    first = {name: dig(pod, "spec", "containers", 0, "name") for name, pod in jobs.pods().items()}
    assert first["late-0-worker-0"] == "istio-proxy", "injected before the container that trains"
