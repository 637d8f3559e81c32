"""Jobs on a real node: replicas run, find each other by the names in TF_CONFIG, and land where they should."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, dig, objects
from patience import PATIENCE_SECONDS
from support.cluster_jobs import ClusterJobs, example, tiny
from support.command_line import CommandLine
from support.waiting import eventually
from testbed import NodeCluster
from testbed.fake_nodes import FAKE_NODES
from testbed.processes import wait_until

MEET_ALL = """
met=$(mktemp)
nc -ll -p 2222 -e sh -c 'read who; echo here; echo "$who" >> '"$met" &
peers=$(echo "$TF_CONFIG" | grep -o '[a-z0-9.-]*:2222' | cut -d: -f1)
for peer in $peers; do
  until [ "$(echo "$HOSTNAME" | nc "$peer" 2222)" = here ]; do sleep 0.1; done
done
until [ "$(sort -u "$met" | wc -l)" -eq "$(echo $peers | wc -w)" ]; do sleep 0.1; done
"""
"""Reaches every address of TF_CONFIG, and ends when all replicas have reached this one too."""


def test_replicas_meet_under_the_names_of_tf_config_and_deletion_leaves_nothing(
    node_testbed: NodeCluster, jobs: ClusterJobs
) -> None:
    roles = {"chief": 1, "worker": 2}
    jobs.submit(tiny("meet", MEET_ALL, roles=roles, runPolicy={"successPolicy": "AllWorkers", "scheduling": {}}))
    jobs.await_condition("meet", "Complete")
    assert {pod["spec"]["nodeName"] for pod in jobs.pods().values()} == {"node1"}
    jobs.delete("meet")
    # The garbage collector of a young cluster looks for new kinds of owners every 30 seconds.
    wait_until(lambda: jobs.left() == "", what="the garbage collector")


def test_a_replica_that_fails_is_named_with_its_code_and_last_words(
    node_testbed: NodeCluster, jobs: ClusterJobs
) -> None:
    script = 'if [ "$DTJ_INDEX" = 1 ]; then echo no such flower; exit 3; fi; sleep 300'
    jobs.submit(tiny("fails", script, roles={"worker": 2}, runPolicy={"backoffLimit": 1}))
    jobs.await_condition("fails", "Failed")
    cause = jobs.job("fails")["status"]["rootCause"]
    assert (cause["pod"], cause["exitCode"], cause["node"]) == ("fails-worker-1-r1", 3, "node1")
    assert cause["message"].strip() == "no such flower"
    kept = {"fails-worker-1", "fails-worker-1-r1"}
    wait_until(lambda: set(jobs.pods()) == kept, what="the end of the other pods")


def test_a_volume_that_cannot_be_mounted_is_said_in_the_words_of_the_kubelets_event(jobs: ClusterJobs) -> None:
    absent: JsonObject = {"volume": {"secret": {"secretName": "absent"}}}
    jobs.submit(tiny("unmounted", "sleep 300", roles={"worker": 1}, checkpoint=absent))

    def is_said() -> None:
        conditions = jobs.job("unmounted")["status"].get("conditions", [])
        ready = next((c for c in conditions if c["type"] == "PodsReady"), {"reason": "none yet"})
        assert ready["reason"] == "PodStartFailed", ready
        assert "unmounted-worker-0: " in ready["message"]
        assert ready["message"].endswith("(FailedMount)")

    eventually(is_said)


@pytest.mark.parametrize(
    ("name", "profile", "resource"),
    [("digits-gpu", "gke-nvidia-l4", "nvidia.com/gpu"), ("digits-tpu", "tpu-v5e", "google.com/tpu")],
)
def test_replicas_land_on_the_nodes_that_have_their_accelerator(
    jobs: ClusterJobs, name: str, profile: str, resource: str
) -> None:
    body = example(name)
    body["spec"]["accelerator"]["profile"] = profile  # type: ignore[index,call-overload]
    if name == "digits-tpu":  # the slice that the fake nodes have is one of two hosts
        body["spec"]["accelerator"]["topology"] = "2x4"  # type: ignore[index,call-overload]
        body["spec"]["replicaSpecs"]["worker"]["replicas"] = 2  # type: ignore[index,call-overload]
    jobs.submit(body)
    jobs.await_condition(name, "PodsReady")
    nodes = {node.name: node for node in FAKE_NODES}
    landed = [nodes[pod["spec"]["nodeName"]] for pod in jobs.pods().values()]
    assert len({node.name for node in landed}) == 2
    assert {node.resource for node in landed} == {resource}


SHOW_SHARED_MEMORY = """
used() { cat /sys/fs/cgroup/memory.current 2>/dev/null || cat /sys/fs/cgroup/memory/memory.usage_in_bytes; }
before=$(used)
dd if=/dev/zero of=/dev/shm/block bs=1M count=32 2>/dev/null
set -- $(df -kP /dev/shm | tail -n 1)
echo "$2 KiB, of which $((($(used) - before) >> 20)) MiB count"
"""
"""Writes 32 MiB there, and says how much there may be, and how much counts as memory of the container."""


def test_a_pod_with_several_gpus_has_more_shared_memory_which_counts_as_its_own(
    node_testbed: NodeCluster, jobs: ClusterJobs
) -> None:
    cases: tuple[tuple[str, JsonObject, int], ...] = (  # no more than the memory limit, if there is one
        ("one", {"nvidia.com/gpu": 1}, 64 << 10),
        ("two", {"nvidia.com/gpu": 2}, 1 << 20),
        ("two-in-little-memory", {"nvidia.com/gpu": 2, "memory": "256Mi"}, 256 << 10),
    )
    with _gpus_claimed(node_testbed, "node1", 5):
        for name, limits, kibibytes in cases:
            body = tiny(name, SHOW_SHARED_MEMORY, roles={"worker": 1})
            (container,) = objects(dig(body, "spec", "template", "spec", "containers"))
            container["resources"] = {"limits": limits}
            jobs.submit(body)
            jobs.await_condition(name, "Complete")
            said = re.fullmatch(r"(\d+) KiB, of which (\d+) MiB count\n", jobs.log(f"{name}-worker-0"))
            assert said is not None, jobs.story(name)
            assert int(said[1]) == kibibytes
            assert 32 <= int(said[2]) < 48


@contextmanager
def _gpus_claimed(cluster: NodeCluster, node: str, count: int) -> Iterator[None]:
    """While a node says that it has GPUs, as its administrator may do by hand, so that pods that ask for them run."""

    def claim(amount: str | None) -> None:
        amounts = {"nvidia.com/gpu": amount}
        patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
        cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", f"--patch={patch}")

    claim(str(count))
    try:
        yield
    finally:
        claim(None)


def test_dtj_tensorboard_shows_what_a_pod_wrote(node_testbed: NodeCluster, jobs: ClusterJobs, tmp_path: Path) -> None:
    script = 'mkdir -p "$DTJ_LOG_DIR"; echo loss 0.41 > "$DTJ_LOG_DIR/curves"; sleep 300'
    storage: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}
    jobs.submit(tiny("curves", script, roles={"worker": 1}, checkpoint=storage, tensorBoard={}))
    with CommandLine(tmp_path, node_testbed.kubeconfig, jobs.namespace) as dtj:
        shown = dtj.start("tensorboard", "curves", "--port=0", f"--timeout={PATIENCE_SECONDS:.0f}")
        assert shown.stdout is not None
        line = shown.stdout.readline()
        assert line.startswith("TensorBoard of curves: http://127.0.0.1:"), jobs.story("curves")
        (url,) = re.findall(r"http://[0-9.:]+/", line)
        for _ in range(2):
            with urllib.request.urlopen(f"{url}curves", timeout=PATIENCE_SECONDS) as reply:
                assert reply.read() == b"loss 0.41\n"
        shown.send_signal(signal.SIGINT)
        assert shown.wait(PATIENCE_SECONDS) == 130
    jobs.delete("curves")
