"""One job's whole life, and the rules of the CRDs, on the API servers of other versions of Kubernetes.

The oldest and the newest version run by default; DTJ_KUBERNETES_VERSIONS names others, or `all`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from bad_manifests import RULE_BREAKERS, SCHEMA_BREAKERS
from bad_tfjobs import ACCEPTED
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.validation import validate
from support import tfjob_operators
from support.job_world import JobWorld
from support.kubernetes_versions import CHOICE, chosen, started
from support.operator_process import OperatorProcess
from support.server_answers import apply, wrong_answers
from support.status_port import status_port
from support.tfjob_policy import LINES, guarding
from support.waiting import eventually, eventually_true
from testbed import ApiError, ControlPlane


@pytest.fixture(scope="module", params=chosen(os.environ.get(CHOICE, "")))
def cluster(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """In place of the shared cluster: a control plane of another version."""
    yield from started(request.param)


def tf_config(pod: JsonObject) -> JsonObject:
    variables = {str(one["name"]): one.get("value") for one in objects(dig(pod, "spec", "containers", 0, "env"))}
    found: JsonObject = json.loads(str(variables["TF_CONFIG"]))
    return found


def test_the_crd_is_served_with_its_rules(cluster: ControlPlane, namespace: str) -> None:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/distributedtrainingjobs.training.dtj.dev"
    conditions = {str(c["type"]): c for c in objects(dig(cluster.api.request("GET", crd), "status", "conditions"))}
    assert conditions["Established"]["status"] == "True"
    assert "NonStructuralSchema" not in conditions
    # Our own rules answer in the same words everywhere; those of types and ranges are the server's.
    ours = {case: (body, [v.message for v in validate(body)]) for case, body in RULE_BREAKERS.items()}
    theirs = {
        case: (body, [v.field.partition("[")[0] for v in validate(body)]) for case, body in SCHEMA_BREAKERS.items()
    }
    assert wrong_answers(partial(apply, cluster, namespace), {**ours, **theirs}) == ""


def test_tfjobs_that_break_a_rule_are_refused_and_no_others(cluster: ControlPlane, namespace: str) -> None:
    tfjob_operators.install(cluster)
    with guarding(cluster, namespace):
        assert wrong_answers(partial(apply, cluster, namespace), LINES) == ""
        taken = {case: apply(cluster, namespace, body, "--dry-run=server") for case, body in ACCEPTED.items()}
        assert {case: answer for case, answer in taken.items() if answer} == {}


@pytest.fixture
def trainer() -> Iterator[str]:
    """The address of a pod that trains."""
    metrics: JsonObject = {"loss": "0.41"}
    with status_port({"phase": "Training", "step": 120, "totalSteps": 500, "percent": 24, "metrics": metrics}) as at:
        yield at


def test_a_job_lives_its_whole_life(world: JobWorld, operator: OperatorProcess, trainer: str) -> None:
    world.begin(roles={"worker": 2})
    config = tf_config(world.pods()["digits-worker-1"])
    assert config["task"] == {"type": "worker", "index": 1}
    workers = dig(config, "cluster", "worker")
    assert isinstance(workers, list)
    assert [text(address).partition(".")[0] for address in workers] == ["worker-0", "worker-1"]
    world.run_pod("digits-worker-0", ip=trainer)
    world.run_pod("digits-worker-1")
    world.await_state("Running")

    def is_reported() -> None:
        progress = world.job().status.progress
        assert progress is not None
        assert (progress.step, progress.percent) == (120, 24)

    eventually(is_reported)
    world.end_pod("digits-worker-1", exit_code=143, message="")
    with suppress(ApiError):  # the operator may have deleted it already, for the first
        world.end_pod("digits-worker-0", exit_code=75)
    eventually_true(lambda: {"digits-worker-0-r1", "digits-worker-1-r1"} <= set(world.pods()))
    assert world.job().status.restarts.total == 1
    world.run_pods()
    world.await_state("Running")
    world.end_pod("digits-worker-0-r1", exit_code=0)
    world.await_state("Succeeded")

    def cleaned_up() -> None:
        running = [pod for pod in world.pods().values() if dig(pod, "status", "phase") == "Running"]
        assert all(dig(pod, "metadata", "deletionTimestamp") for pod in running)
        assert "digits" not in world.services()

    eventually(cleaned_up)
    world.delete_job()
    eventually_true(lambda: all(dig(pod, "metadata", "deletionTimestamp") for pod in world.pods().values()))
    assert operator.running
