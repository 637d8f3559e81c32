"""``dtj logs``, ``dtj status`` and ``dtj doctor`` against a real API server and operator, as a person uses them."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import Result

from dtj.api.names import Condition
from dtj.cli.common.terminal import Exit
from patience import PATIENCE_SECONDS
from support.command_line import CommandLine, typed
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs

ALL_WORKERS = {"successPolicy": "AllWorkers"}
"""With it, one end of two is not the job's."""


@dataclass
class Person:
    """Someone with a kubeconfig, who types commands."""

    kubeconfig: Path
    world: JobWorld

    def types(self, *words: str) -> Result:
        """A command and what came of it."""
        return typed(self.world.plane, self.world.namespace, *words, kubeconfig=self.kubeconfig)

    def says(self, *words: str, code: int = Exit.OK) -> str:
        """What a command prints."""
        result = self.types(*words)
        assert result.return_value == code, f"{result.output}{result.exception}"
        return result.output


@pytest.fixture
def person(world: JobWorld) -> Person:
    """An administrator."""
    return Person(world.plane.kubeconfig, world)


@pytest.fixture
def reader(world: JobWorld, log_reader: Path) -> Person:
    """An administrator with permission to read logs: there are no kubelets here to ask."""
    return Person(log_reader, world)


# -- status ----------------------------------------------------------------------------------------------------


def test_status_without_a_name_is_that_of_the_only_job(world: JobWorld, person: Person) -> None:
    def refused() -> str:
        result = person.types("status")
        assert isinstance(result.exception, click.UsageError)
        return result.exception.format_message()

    assert refused() == f"there are no jobs in namespace {world.namespace}; dtj list -A shows those of all"
    world.submit("digits")
    assert "digits" in person.says("status").splitlines()[0]
    world.submit("letters")
    assert refused() == f"there are 2 jobs in namespace {world.namespace}; name one: digits, letters"


@pytest.mark.usefixtures("operator")
def test_watching_reports_each_change_and_ends_with_the_job(world: JobWorld, person: Person) -> None:
    world.begin(runPolicy=ALL_WORKERS)
    results: list[Result] = []
    watching = threading.Thread(target=lambda: results.append(person.types("status", "digits", "--watch")), daemon=True)
    watching.start()
    world.run_pods()
    world.await_condition(Condition.PODS_READY)
    for pod in ("digits-worker-0", "digits-worker-1"):
        world.end_pod(pod, exit_code=0)
    watching.join(timeout=PATIENCE_SECONDS)
    assert results, "it did not end"
    assert results[0].return_value == Exit.OK
    lines = results[0].output.splitlines()
    assert lines[-1].endswith("Succeeded")
    assert len(lines) == len(set(lines))


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("words", [["status", "digits", "--watch"], ["logs", "digits", "--follow"]])
def test_ctrl_c_ends_the_command_and_says_that_the_job_goes_on(
    world: JobWorld, dtj: CommandLine, words: list[str]
) -> None:
    world.begin()
    mark = world.plane.audit.mark()
    looking = dtj.start(*words)
    world.await_watch(since=mark)
    looking.send_signal(signal.SIGINT)
    _, errors = looking.communicate(timeout=PATIENCE_SECONDS)
    assert looking.returncode == 128 + signal.SIGINT
    assert errors.endswith("digits continues to run.\n")
    assert "Traceback" not in errors
    assert set(world.pods()) == {"digits-worker-0", "digits-worker-1"}


# -- logs ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("operator")
def test_logs_of_all_replicas_are_merged_by_time(world: JobWorld, kubelet: KubeletLogs, reader: Person) -> None:
    world.run()
    kubelet.say("digits-worker-0", "first", second=1)
    kubelet.say("digits-worker-1", "second", second=2)
    kubelet.say("digits-worker-0", "third", second=3)
    assert reader.says("logs", "digits") == "worker-0 | first\nworker-1 | second\nworker-0 | third\n"
    assert reader.says("logs", "digits", "--role=worker", "--index=0") == "first\nthird\n"
    assert reader.says("logs", "digits", "--tail=1") == "worker-1 | second\nworker-0 | third\n"
    stamped = reader.says("logs", "digits", "--role=worker", "--index=1", "--timestamps", "--since=5m")
    assert stamped == "2026-01-02T03:04:07.000000000Z second\n"
    assert kubelet.asked[-1][1]["sinceSeconds"] == "300"
    none = reader.says("logs", "digits", "--container=sidecar", code=Exit.USAGE)
    assert none == '--container: no container "sidecar": there are trainer\n'


@pytest.mark.usefixtures("operator")
def test_the_first_error_is_found_in_the_log_of_the_root_cause(
    world: JobWorld, kubelet: KubeletLogs, reader: Person
) -> None:
    world.run(runPolicy={"backoffLimit": 0})
    trace = ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'flowers'"]
    kubelet.say("digits-worker-1", *(f"step {number}" for number in range(30)), *trace)
    assert reader.says("logs", "digits", "--first-error", code=Exit.USAGE).startswith("digits: no replica has failed")
    world.end_pod("digits-worker-1", exit_code=1, message=trace[-1])
    world.await_condition(Condition.FAILED)
    text = reader.says("logs", "digits", "--first-error")
    assert "step 24\n" not in text
    assert "  step 29\n> Traceback (most recent call last):\n" in text
    assert "hint: a Python package is missing" in text
    world.delete("pods", "digits-worker-1")
    gone = reader.says("logs", "digits", "--first-error")
    assert "pod digits-worker-1 is gone, and its log with it" in gone
    assert "> ModuleNotFoundError" in gone


# -- doctor ----------------------------------------------------------------------------------------------------


def install(world: JobWorld) -> None:
    """What `helm install` leaves of an operator that runs in this namespace, for this namespace."""
    at = f"/apis/apps/v1/namespaces/{world.namespace}/deployments"
    labels = {"app.kubernetes.io/name": "dtj-operator"}
    args = [f"--namespace={world.namespace}", f"--lease-namespace={world.namespace}", "--lease-name=dtj"]
    container = {"name": "operator", "image": "example/operator:1", "args": args}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    world.api.request("POST", at, {"metadata": {"name": "dtj", "labels": labels}, "spec": spec})
    lease = {"holderIdentity": "dtj-0", "renewTime": "2020-01-01T00:00:00.000000Z"}
    world.api.request("POST", leases(world), {"metadata": {"name": "dtj"}, "spec": lease})


def leases(world: JobWorld) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{world.namespace}/leases"


def renew_lease(world: JobWorld) -> None:
    """As the leader does every other second."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    world.api.request("PATCH", f"{leases(world)}/dtj", {"spec": {"renewTime": now}})


def _operators_pods(world: JobWorld) -> list[str]:
    """The pods that the cluster makes of the Deployment."""
    path = f"/api/v1/namespaces/{world.namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3Ddtj-operator"
    names = [pod["metadata"]["name"] for pod in world.api.request("GET", path)["items"]]
    assert len(names) == 2
    return names


def checks(text: str) -> dict[str, str]:
    """Verdict by title."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        title = line[13:].partition(":")[0]
        if line[:1].strip() and title:
            found.setdefault(title, line[:13].strip())
    return found


def test_the_doctor_is_content_with_a_whole_installation(world: JobWorld, person: Person) -> None:
    install(world)
    titles = ("cluster", "CRD", "operator", "leader", "operator's rights", "your rights", "submitting")
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": world.namespace}
    binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/rolebindings/dtj-operator"
    world.api.request("PATCH", binding, {"subjects": [subject]})
    for pod in world.eventually(lambda: _operators_pods(world)):
        world.run_pod(pod)

    def is_content() -> None:
        renew_lease(world)
        text = person.says("doctor", "--operator-namespace", world.namespace)
        assert {checks(text)[title] for title in titles} == {"ok"}, text

    world.eventually(is_content)  # the status of a Deployment follows its pods a moment later
    assert world.jobs() == [], "it changes nothing"
