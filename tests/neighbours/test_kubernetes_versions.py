"""One job's whole life, and the rules of the CRDs, on the API servers of other versions of Kubernetes.

The oldest and the newest version run by default; DTJ_KUBERNETES_VERSIONS names others, or `all`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bad_manifests import RULE_BREAKERS, SCHEMA_BREAKERS
from bad_tfjobs import ACCEPTED
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.validation import validate
from support import tfjob_operators
from support.job_world import JobWorld
from support.kubernetes_versions import CHOICE, chosen, started
from support.operator_process import OperatorProcess
from support.status_port import StatusPort
from support.tfjob_policy import apply, guarding, wrong_answers
from support.waiting import eventually
from testbed import ApiError, ControlPlane


@pytest.fixture(scope="module", params=chosen(os.environ.get(CHOICE, "")))
def cluster(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """In place of the shared cluster: a control plane of another version."""
    yield from started(request.param)


@pytest.fixture
def trainer() -> Iterator[StatusPort]:
    """A pod's status port."""
    with StatusPort() as port:
        yield port


def refusal(cluster: ControlPlane, namespace: str, body: JsonObject) -> str:
    """What the API server answers to a manifest that it does not take; empty if it takes it."""
    given = json.dumps(body)
    # A null is sent by server-side apply: client-side apply drops it before any server can see it.
    how = ["--server-side"] if "null" in given else []
    done = cluster.kubectl("apply", *how, "--namespace", namespace, "--filename", "-", stdin=given, check=False)
    return "" if done.returncode == 0 else done.stderr


def tf_config(pod: JsonObject) -> JsonObject:
    variables = {str(one["name"]): one.get("value") for one in objects(dig(pod, "spec", "containers", 0, "env"))}
    found: JsonObject = json.loads(str(variables["TF_CONFIG"]))
    return found


def test_the_crd_is_served_with_its_rules(cluster: ControlPlane, namespace: str) -> None:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/distributedtrainingjobs.training.dtj.dev"
    conditions = {str(c["type"]): c for c in objects(dig(cluster.api.request("GET", crd), "status", "conditions"))}
    assert conditions["Established"]["status"] == "True"
    assert "NonStructuralSchema" not in conditions
    wrong = {}
    for case, body in {**RULE_BREAKERS, **SCHEMA_BREAKERS}.items():
        answer = refusal(cluster, namespace, body)
        # Our own rules answer in the same words everywhere; those of types and ranges are the server's.
        parts = [v.message if case in RULE_BREAKERS else v.field.partition("[")[0] for v in validate(body)]
        missing = [part for part in parts if part not in answer]
        if missing or not answer:
            wrong[case] = {"missing": missing, "answer": answer or "accepted"}
    assert not wrong, json.dumps(wrong, indent=1)


def test_tfjobs_that_break_a_rule_are_refused_and_no_others(cluster: ControlPlane, namespace: str) -> None:
    tfjob_operators.install(cluster)
    with guarding(cluster, namespace):
        wrong = wrong_answers(cluster, namespace)
        taken = {case: apply(cluster, namespace, body, "--dry-run=server") for case, body in ACCEPTED.items()}
    refused = {case: answer for case, answer in taken.items() if answer}
    assert not {**wrong, **refused}, json.dumps({**wrong, **refused}, indent=1)


def test_a_job_lives_its_whole_life(world: JobWorld, operator: OperatorProcess, trainer: StatusPort) -> None:
    trainer.says = {"phase": "Training", "step": 120, "totalSteps": 500, "percent": 24, "metrics": {"loss": "0.41"}}
    world.begin(roles={"worker": 2})
    config = tf_config(world.pods()["digits-worker-1"])
    assert config["task"] == {"type": "worker", "index": 1}
    workers = dig(config, "cluster", "worker")
    assert isinstance(workers, list)
    assert [text(address).partition(".")[0] for address in workers] == ["worker-0", "worker-1"]
    world.run_pod("digits-worker-0", ip=trainer.address)
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

    def restarted() -> None:
        assert {"digits-worker-0-r1", "digits-worker-1-r1"} <= set(world.pods())

    eventually(restarted)
    assert world.job().status.restarts.total == 1
    world.run_pods()
    world.await_state("Running")
    world.end_pod("digits-worker-0-r1", exit_code=0)
    world.await_state("Succeeded")

    def cleaned_up() -> None:
        terminating = [pod for pod in world.pods().values() if dig(pod, "metadata", "deletionTimestamp")]
        running = [pod for pod in world.pods().values() if dig(pod, "status", "phase") == "Running"]
        assert all(pod in terminating for pod in running)
        assert not [name for name in world.services() if name == "digits"]

    eventually(cleaned_up)
    world.delete_job()

    def collected() -> None:
        left = [name for name, pod in world.pods().items() if not dig(pod, "metadata", "deletionTimestamp")]
        assert not left

    eventually(collected)
    assert operator.running
