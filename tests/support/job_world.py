"""One namespace of a real cluster as the tests see it: its jobs, their objects, and a kubelet that is played."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from builders import manifest
from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition, Label
from dtj.api.status import ConditionStatus
from support.waiting import eventually
from testbed import ApiError, ControlPlane
from testbed.rest import RestClient

JOBS = f"/apis/{names.API_VERSION}"
MERGE_PATCH = "application/merge-patch+json"
HELD = "tests.dtj.dev/held"
OF_NO_SCHEDULER: JsonObject = {
    "spec": {"schedulerName": "nobody", "containers": [{"name": "trainer", "image": "example/trainer:1"}]}
}
"""A template of pods that no scheduler looks at, so that the operator has nothing to report of one."""

T = TypeVar("T")


@dataclass(frozen=True)
class JobWorld:
    """Everything in one namespace."""

    plane: ControlPlane
    namespace: str

    @property
    def api(self) -> RestClient:
        """How the tests ask the API server."""
        return self.plane.api

    def eventually(self, check: Callable[[], T]) -> T:
        """Wait until ``check`` raises no AssertionError; what it returns then."""
        return eventually(check)

    def await_watch(self, *, since: int) -> None:
        """Wait until a person's command watches something in this namespace; ``since`` is a mark of the audit log."""

        def watches() -> None:
            calls = self.plane.audit.calls(since=since, user="testbed-admin", namespace=self.namespace)
            assert any(call.verb == "watch" for call in calls)

        self.eventually(watches)

    def user(self, name: str, *verbs: str, config_maps: tuple[str, ...] = ()) -> Path:
        """The kubeconfig of a user who may do this to jobs, and to ConfigMaps, of the namespace, and nothing else."""
        group = "rbac.authorization.k8s.io"
        at = f"/apis/{group}/v1/namespaces/{self.namespace}"
        rights = [("training.dtj.dev", "distributedtrainingjobs", verbs), ("", "configmaps", config_maps)]
        rules: list[JsonValue] = [
            {"apiGroups": [its_group], "resources": [resource], "verbs": [*allowed]}
            for its_group, resource, allowed in rights
            if allowed
        ]
        role: JsonObject = {"apiGroup": group, "kind": "Role", "name": name}
        subject: JsonObject = {"apiGroup": group, "kind": "User", "name": name}
        self.api.request("POST", f"{at}/roles", {"metadata": {"name": name}, "rules": rules})
        binding: JsonObject = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        self.api.request("POST", f"{at}/rolebindings", binding)
        return self.plane.kubeconfig_for(name)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def submit(self, name: str = "digits", *, roles: dict[str, int] | None = None, **arguments: object) -> Job:
        """Create a job; the arguments are those of :func:`builders.manifest`."""
        body = manifest(name, roles=roles, **arguments)  # type: ignore[arg-type]
        return Job.from_object(self.api.request("POST", f"{self._at(JOBS)}/{names.PLURAL}", body))

    def begin(self, name: str = "digits", *, roles: dict[str, int] | None = None, **arguments: object) -> Job:
        """Create a job, and wait until all its pods are there."""
        job = self.submit(name, roles=roles, **arguments)
        wanted = (roles or {"worker": 2}).items()
        self.await_pods([f"{role}-{index}" for role, count in wanted for index in range(count)], name)
        return job

    def run(self, name: str = "digits", *, roles: dict[str, int] | None = None, **arguments: object) -> Job:
        """Create a job, and wait until it runs."""
        self.begin(name, roles=roles, **arguments)
        self.run_pods(name)
        return self.await_state("Running", name)

    def apply(self, body: JsonObject) -> None:
        """``kubectl apply``."""
        self.plane.kubectl("apply", "--namespace", self.namespace, "--filename", "-", stdin=json.dumps(body))

    def body(self, name: str = "digits") -> JsonObject:
        return self.api.request("GET", f"{self._at(JOBS)}/{names.PLURAL}/{name}")

    def job(self, name: str = "digits") -> Job:
        return Job.from_object(self.body(name))

    def change_spec(self, change: JsonObject, name: str = "digits") -> None:
        """Merge ``change`` into the job's spec."""
        path = f"{self._at(JOBS)}/{names.PLURAL}/{name}"
        self.api.request("PATCH", path, {"spec": change}, content_type="application/merge-patch+json")

    def annotate(self, annotations: JsonObject, name: str = "digits") -> None:
        """Change nothing but the job's annotations."""
        path = f"{self._at(JOBS)}/{names.PLURAL}/{name}"
        patch: JsonObject = {"metadata": {"annotations": annotations}}
        self.api.request("PATCH", path, patch, content_type="application/merge-patch+json")

    def jobs(self) -> list[JsonObject]:
        """All jobs of the namespace."""
        return objects(self.api.request("GET", f"{self._at(JOBS)}/{names.PLURAL}").get("items"))

    def delete_job(self, name: str = "digits") -> None:
        self.api.request("DELETE", f"{self._at(JOBS)}/{names.PLURAL}/{name}")

    def await_state(self, state: str, name: str = "digits") -> Job:
        """Wait until the job is in this state."""

        def reached() -> Job:
            job = self.job(name)
            assert job.status.state == state, f"{name} is {job.status.state} ({job.status.reason}), not {state}"
            return job

        return self.eventually(reached)

    def await_reason(self, reason: str, name: str = "digits") -> None:
        """Wait until the state of the job has this reason."""

        def reached() -> None:
            assert self.job(name).status.reason == reason

        self.eventually(reached)

    def condition(self, kind: Condition, name: str = "digits") -> ConditionStatus:
        """The job's condition of that kind, which must be there."""
        found = self.job(name).status.condition(kind)
        assert found is not None, f"{name} has no condition {kind}"
        return found

    def await_condition(self, condition: Condition, name: str = "digits") -> Job:
        """Wait until the job's condition is True."""

        def reached() -> Job:
            job = self.job(name)
            assert job.status.is_true(condition), f"{name} is not {condition}: {job.status.conditions}"
            return job

        return self.eventually(reached)

    # -- what a job owns -----------------------------------------------------------------------------------------

    def pods(self, name: str = "digits") -> dict[str, JsonObject]:
        """The pods with this job's label, by name."""
        return self._labelled("pods", name)

    def config_maps(self, name: str = "digits") -> dict[str, JsonObject]:
        """The job's ConfigMaps, by name."""
        return self._labelled("configmaps", name)

    def services(self, name: str = "digits") -> dict[str, JsonObject]:
        return self._labelled("services", name)

    def claims(self, name: str = "digits") -> dict[str, JsonObject]:
        return self._labelled("persistentvolumeclaims", name)

    def await_pods(self, wanted: Iterable[str], name: str = "digits") -> None:
        """Wait until the job's pods are exactly these: their names without the job's."""
        expected = {f"{name}-{replica}" for replica in wanted}

        def there() -> None:
            found = set(self.pods(name))
            assert found == expected, f"the pods are {sorted(found)}, not {sorted(expected)}"

        self.eventually(there)

    def await_running(self, *replicas: str, name: str = "digits") -> Job:
        """Wait for these pods, have them run, and wait until the job does."""
        self.await_pods(replicas, name)
        self.run_pods(name)
        return self.await_state("Running", name)

    def events(self, reason: str = "") -> list[JsonObject]:
        """Events of our operator, of one reason or all."""
        return [
            event
            for event in objects(self.api.request("GET", f"{self._at('/apis/events.k8s.io/v1')}/events").get("items"))
            if event.get("reportingController") == names.MANAGER and reason in ("", event.get("reason"))
        ]

    def await_event(self, reason: str) -> JsonObject:
        """Wait for the operator's event of a reason, and there may be but one. The operator writes events on their own,
        so a status may be there before the event about it.
        """

        def there() -> list[JsonObject]:
            found = self.events(reason)
            assert found, f"no event {reason}"
            return found

        (event,) = self.eventually(there)
        return event

    # -- the kubelet ---------------------------------------------------------------------------------------------

    def run_pods(self, name: str = "digits") -> None:
        """All pods of the job that have not ended run and are ready."""
        for pod, body in self.pods(name).items():
            if dig(body, "status", "phase") not in ("Succeeded", "Failed"):
                self.run_pod(pod)

    def run_pod(self, pod: str, *, ip: str = "") -> None:
        """The pod runs, and is ready; it can be reached where it has an address."""
        self._set_status(pod, partial(running, ip=ip))

    def end_pod(self, pod: str, *, exit_code: int, message: str = "", reason: str = "") -> None:
        """The pod's container ends."""
        self._set_status(pod, partial(ended, exit_code=exit_code, message=message, reason=reason))

    def _set_status(self, pod: str, status: Callable[[JsonObject], JsonObject]) -> None:
        path = f"{self._at('/api/v1')}/pods/{pod}"
        body = self.api.request("GET", path)
        self.api.request("PATCH", f"{path}/status", {"status": status(body)}, content_type=MERGE_PATCH)

    def hold_pods(self, name: str = "digits") -> None:
        """The job's pods stay when they are deleted, as if their containers took long to stop."""
        self._set_finalizers(name, [HELD])

    def let_pods_go(self, name: str = "digits") -> None:
        """The containers of held pods have stopped."""
        self._set_finalizers(name, [])

    def _set_finalizers(self, name: str, finalizers: list[JsonValue]) -> None:
        for pod in self.pods(name):
            patch: JsonObject = {"metadata": {"finalizers": finalizers}}
            self.api.request("PATCH", f"{self._at('/api/v1')}/pods/{pod}", patch, content_type=MERGE_PATCH)

    # -- others --------------------------------------------------------------------------------------------------

    def create(self, plural: str, body: JsonObject) -> JsonObject:
        """Create an object of the core group, as somebody else."""
        return self.api.request("POST", f"{self._at('/api/v1')}/{plural}", body)

    def get(self, plural: str, name: str) -> JsonObject | None:
        """An object of the core group; None where there is none."""
        try:
            return self.api.request("GET", f"{self._at('/api/v1')}/{plural}/{name}")
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def delete(self, plural: str, name: str) -> None:
        self.api.request("DELETE", f"{self._at('/api/v1')}/{plural}/{name}", {"gracePeriodSeconds": 0})

    def _labelled(self, plural: str, job: str) -> dict[str, JsonObject]:
        path = f"{self._at('/api/v1')}/{plural}?labelSelector={Label.JOB_NAME}%3D{job}"
        found = objects(self.api.request("GET", path).get("items"))
        return {text(dig(body, "metadata", "name")): body for body in found}

    def _at(self, root: str) -> str:
        return f"{root}/namespaces/{self.namespace}"


def running(pod: JsonObject, *, ip: str = "") -> JsonObject:
    """The status that a kubelet gives a pod that runs and is ready, at this address if it has one."""
    ready: JsonObject = {"type": "Ready", "status": "True", "lastTransitionTime": _now()}
    address: JsonObject = {"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {}
    return {**_status(pod, "Running", state={"running": {"startedAt": _now()}}, condition=ready), **address}


def ended(pod: JsonObject, *, exit_code: int, message: str = "", reason: str = "") -> JsonObject:
    """The status that a kubelet gives a pod whose container has ended."""
    end: JsonObject = {
        "exitCode": exit_code,
        "reason": reason or ("Error" if exit_code else "Completed"),
        "message": message,
        "startedAt": _now(),
        "finishedAt": _now(),
    }
    not_ready: JsonObject = {"type": "Ready", "status": "False", "lastTransitionTime": _now()}
    return _status(pod, "Failed" if exit_code else "Succeeded", state={"terminated": end}, condition=not_ready)


def _status(pod: JsonObject, phase: str, *, state: JsonObject, condition: JsonObject) -> JsonObject:
    container = objects(dig(pod, "spec", "containers"))[0]
    return {
        "phase": phase,
        "conditions": [condition],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": phase == "Running",
                "state": state,
            }
        ],
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
