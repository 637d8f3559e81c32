"""The tables of training-operator's own tests as cases, each expectation or the difference that is meant.

Source: ``pkg/controller.v1/tensorflow/{status,pod}_test.go`` of kubeflow/training-operator v1.9.4. Their tests call
functions of Go; here the planner plays the same states. A row is fulfilled, there and here, when the job has a
condition of the type, whatever its status, and never Running together with an end.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dtj.api.json import dig
from dtj.core.observed import Phase
from dtj.core.platform import ReplicaServiceNetwork
from support.played_tfjobs import conditions, tf_config, tfjob, world_of


@dataclass(frozen=True)
class Row:
    """How many pods of each role have failed, have succeeded and are active, and the condition that there must be."""

    expected: str
    worker: tuple[int, int, int] = (0, 0, 0)
    chief: tuple[int, int, int] = (0, 0, 0)
    ps: tuple[int, int, int] = (0, 0, 0)
    worker_0_is_done: bool = False
    all_workers: bool = False
    exit_code: int = 1
    restarts: str = "Never"

    def phases(self) -> dict[str, Phase]:
        """Each replica's. Those of the tables that have succeeded without an exit code are not worker 0."""
        found: dict[str, Phase] = {}
        for role in ("chief", "worker", "ps"):
            failed, succeeded, active = getattr(self, role)
            order = [Phase.RUNNING] * active + [Phase.FAILED] * failed
            done = [Phase.SUCCEEDED] * succeeded
            order = done + order if self.worker_0_is_done else order + done
            found |= {f"{role}-{index}": phase for index, phase in enumerate(order)}
        return found


STATUS = {
    "chief is done": Row("Succeeded", worker=(0, 1, 0), chief=(0, 1, 0)),
    "chief runs": Row("Running", chief=(0, 0, 1)),
    "chief has failed": Row("Failed", chief=(1, 0, 0)),
    "a worker alone has failed": Row("Failed", worker=(1, 0, 0)),
    "a worker alone is done": Row("Succeeded", worker=(0, 1, 0)),
    "a worker alone runs": Row("Running", worker=(0, 0, 1)),
    "2 of 4 workers are done": Row("Running", worker=(0, 2, 2), ps=(0, 0, 2)),
    "2 of 4 workers have failed": Row("Failed", worker=(2, 0, 2), ps=(0, 0, 2)),
    "2 of 4 workers are done and 2 have failed": Row("Failed", worker=(2, 2, 0), ps=(0, 0, 2)),
    "worker 0 is done": Row("Succeeded", worker=(0, 1, 3), ps=(0, 0, 2), worker_0_is_done=True),
    "worker 0 of all is done": Row("Running", worker=(0, 1, 3), worker_0_is_done=True, all_workers=True),
    "all of all are done": Row("Succeeded", worker=(0, 4, 0), worker_0_is_done=True, all_workers=True),
    "worker 0 of all is done and one has failed": Row(
        "Failed", worker=(1, 1, 2), worker_0_is_done=True, all_workers=True
    ),
    "chief runs and workers have failed": Row("Running", worker=(4, 0, 0), chief=(0, 0, 1), ps=(0, 0, 2)),
    "chief runs and workers are done": Row("Running", worker=(0, 4, 0), chief=(0, 0, 1), ps=(0, 0, 2)),
    "chief runs and a server has failed": Row("Failed", worker=(0, 4, 0), chief=(0, 0, 1), ps=(1, 0, 1)),
    "chief has failed and workers are done": Row("Failed", worker=(0, 4, 0), chief=(1, 0, 0), ps=(0, 0, 2)),
    "chief is done and workers have failed": Row("Succeeded", worker=(4, 0, 0), chief=(0, 1, 0), ps=(0, 0, 2)),
    "chief has failed and starts again": Row(
        "Restarting", worker=(4, 0, 0), chief=(1, 0, 0), ps=(0, 0, 2), exit_code=130, restarts="ExitCode"
    ),
}


@pytest.mark.parametrize("row", STATUS.values(), ids=[*STATUS])
def test_the_status_has_the_condition_of_the_table(row: Row) -> None:
    phases = row.phases()
    counts = {kind: count for kind in ("Chief", "Worker", "PS") if (count := sum(getattr(row, kind.lower())))}
    body = tfjob(counts, restarts=row.restarts, successPolicy="AllWorkers" if row.all_workers else "")
    world = world_of(body).start()
    for replica, phase in phases.items():
        world.set_pod(replica, phase, exit_code=row.exit_code if phase is Phase.FAILED else None)
    world.settle()
    found = conditions(world)
    assert row.expected in found, found
    ended = {"Succeeded", "Failed"} & found.keys()
    assert len(ended) < 2
    assert not ended or found.get("Running", "False") == "False"


@pytest.mark.parametrize(
    ("roles", "domain", "expected"),
    [
        ({"Worker": 1}, "", {}),
        ({"Worker": 1}, "tf.training.com", {}),
        # There a job of one server alone has no TF_CONFIG; here it is refused: nothing would ever end it.
        ({"Chief": 1, "Worker": 1}, "", {"chief": "chief-0", "worker": "worker-0"}),
        ({"Worker": 1, "PS": 1}, "tf.training.org", {"ps": "ps-0", "worker": "worker-0"}),
        # There the evaluator is in the cluster, too. TensorFlow wants it to be in nobody's.
        ({"Worker": 1, "PS": 1, "Evaluator": 1}, "tf.training.io", {"ps": "ps-0", "worker": "worker-0"}),
        ({"Worker": 1, "PS": 1, "Evaluator": 1}, "", {"ps": "ps-0", "worker": "worker-0"}),
    ],
)
def test_the_cluster_is_that_of_the_table(roles: dict[str, int], domain: str, expected: dict[str, str]) -> None:
    world = world_of(tfjob(roles), network=ReplicaServiceNetwork(domain)).settle()
    end = f".default.svc{f'.{domain}' if domain else ''}:2222"
    cluster = {role: [f"mnist-{replica}{end}"] for role, replica in expected.items()}
    for pod in world.pods.values():
        wanted = {"cluster": cluster, "task": {"type": pod.role, "index": pod.index}, "environment": "cloud"}
        assert tf_config(world, f"{pod.role}-{pod.index}") == (wanted if expected else None)


@pytest.mark.parametrize(
    ("policy", "of_pod"),
    # There OnFailure and Always are the kubelet's, and peers wait for who is gone; here each start is a pod of its own.
    [("ExitCode", "Never"), ("Never", "Never"), ("Always", "Never"), ("OnFailure", "Never")],
)
def test_the_restart_policy_of_pods_is_that_of_the_table(policy: str, of_pod: str) -> None:
    world = world_of(tfjob({"Worker": 1}, restarts=policy)).settle()
    assert dig(world.manifests["mnist-worker-0"], "spec", "restartPolicy") == of_pod
