"""TFJobs of Kubeflow in the commands: their names as they are typed, in what is printed as well."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext

import pytest

from bad_tfjobs import container, role
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.cli.common.formatting import kind_and_name
from dtj.cli.common.job_view import job_view, next_words
from dtj.cli.common.options import Place
from dtj.client import AsyncClient
from dtj.kube.errors import ApiError, Forbidden, NotFound
from dtj.kube.gateway import JOBS, TFJOBS
from overviews import body, condition
from support.commands import Dtj
from support.fake_gateway import FakeGateway
from support.played_tfjobs import tfjob


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """The API server that a kubeconfig would name, with a job and a TFJob in its namespace ``default``."""
    gateway = FakeGateway()
    gateway.put(JOBS, body(state="Running"))
    gateway.put(TFJOBS, recorded(READY, state="Running", ready="2/2", restarts={"total": 1}))

    async def connect(place: Place) -> AbstractAsyncContextManager[AsyncClient]:
        return nullcontext(AsyncClient(gateway, namespace=place.namespace or "default"))  # type: ignore[arg-type]

    monkeypatch.setattr(Place, "connect", connect)
    return gateway


READY = condition(Condition.PODS_READY, "True", Reason.ALL_PODS_READY)
FAILED = condition(Condition.FAILED, "True", Reason.REPLICA_FAILED, "worker-0 (pod mnist-worker-0) exited with code 1")


def recorded(*conditions: JsonObject, **record: object) -> JsonObject:
    """A TFJob of which the operator has recorded this."""
    return {**tfjob(), "status": {"dtj": {**record, "conditions": [*conditions]}}}  # type: ignore[dict-item]


STATES = {
    "running": recorded(READY, state="Running"),
    "suspended": recorded(condition(Condition.SUSPENDED, "True", Reason.SUSPENDED), state="Suspended"),
    "invalid": recorded(condition(Condition.INVALID, "True", Reason.INVALID_SPEC), state="Pending"),
    "succeeded": recorded(condition(Condition.COMPLETE, "True", Reason.TRAINING_SUCCEEDED), state="Succeeded"),
    "failed": recorded(FAILED, state="Failed", rootCause={"role": "worker", "index": 0}),
}


@pytest.mark.parametrize("state", STATES)
def test_each_command_that_is_next_names_the_tfjob_as_it_is_typed(state: str) -> None:
    job = Job.from_object(STATES[state])
    assert {words[1] for words, _ in next_words(job)} == {"tfjob/mnist"}


def test_tfjobs_are_listed_next_to_jobs(dtj: Dtj, cluster: FakeGateway) -> None:
    of_kubeflow = {
        **tfjob(),
        "status": {"conditions": [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]},
    }
    cluster.put(TFJOBS, {**of_kubeflow, "metadata": {**of_kubeflow["metadata"], "name": "other", "uid": "other"}})  # type: ignore[dict-item]
    titles, *rows = [line.split() for line in dtj("list").out.splitlines()]
    assert titles == ["NAME", "STATE", "STRATEGY", "READY", "PROGRESS", "RESTARTS", "AGE"]
    assert [row[:3] for row in rows] == [
        ["digits", "Running", "MultiWorkerMirrored"],
        ["tfjob/mnist", "Running", "MultiWorkerMirrored"],
        ["tfjob/other", "Running", "MultiWorkerMirrored"],
    ]
    assert rows[1][3:5] == ["2/2", "1"], "ready and restarts"


@pytest.mark.parametrize("error", [NotFound("no such kind"), Forbidden("not for you")])
def test_where_there_are_no_tfjobs_or_none_may_be_listed_only_jobs_are(
    dtj: Dtj, cluster: FakeGateway, error: ApiError
) -> None:
    cluster.fail("list", TFJOBS, error)
    assert [line.split()[0] for line in dtj("list").out.splitlines()] == ["NAME", "digits"]


def test_the_image_of_a_tfjob_is_that_of_the_container_that_trains() -> None:
    beside = role(1, container("proxy", image="example/mesh:1"), container())
    assert job_view(Job.from_object(tfjob({"Worker": beside}))).facts["image"] == "example/mnist:1"


def test_what_is_done_to_a_tfjob_is_said_as_kubectl_says_it(dtj: Dtj, cluster: FakeGateway) -> None:
    assert dtj("suspend", "tfjob/mnist").out == "tfjob.kubeflow.org/mnist suspended\n"
    assert dtj("resume", "tfjob/mnist").out == "tfjob.kubeflow.org/mnist resumed\n"
    cluster.put(TFJOBS, STATES["failed"])
    assert dtj("wait", "tfjob/mnist", "--for=failed").out == "tfjob.kubeflow.org/mnist condition met\n"
    assert dtj("wait", "tfjob/mnist").out == "tfjob.kubeflow.org/mnist failed\n"
    assert kind_and_name("tfjob/mnist") == ("tfjob.kubeflow.org", "mnist")
    assert kind_and_name("digits") == ("distributedtrainingjob.training.dtj.dev", "digits")
