"""The addresses of a large job on a real node: what a kubelet makes of a reference to the job's ConfigMap."""

from __future__ import annotations

import json

from support.cluster_jobs import ClusterJobs, tiny
from testbed.processes import wait_until

WORKERS = 16
NAME = "a-job-with-a-name-that-makes-addresses-long"


def config_maps(jobs: ClusterJobs) -> str:
    """The job's ConfigMaps, as kubectl names them."""
    return jobs.kubectl("get", "configmaps", "-l", f"training.dtj.dev/job-name={NAME}", "-o", "name")


def test_each_pod_of_a_large_job_finds_all_addresses_and_its_own_task(jobs: ClusterJobs) -> None:
    script = 'echo "$TF_CONFIG"; trap exit TERM; while :; do sleep 1; done'
    jobs.submit(tiny(NAME, script, roles={"worker": WORKERS}))
    jobs.await_condition(NAME, "PodsReady")
    (config_map,) = config_maps(jobs).split()
    assert config_map.startswith(f"configmap/{NAME}-cluster-")
    addresses = [f"worker-{index}.{NAME}.{jobs.namespace}.svc:2222" for index in range(WORKERS)]
    for index in range(WORKERS):
        pod = f"{NAME}-worker-{index}"
        jobs.await_log(pod, "}")
        config = json.loads(jobs.log(pod))
        assert config == {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    jobs.suspend(NAME, suspend=True)
    jobs.await_condition(NAME, "Suspended")
    wait_until(lambda: config_maps(jobs) == "", what="the ConfigMap to be deleted when all pods are gone")
