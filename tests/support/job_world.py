"""One namespace of a real cluster as the tests see it: its jobs, their objects, and a kubelet that is played."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from builders import manifest
from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition, Label
from dtj.api.status import ConditionStatus
from support import played_pods
from support.operator_process import grant
from support.waiting import eventually, eventually_equal
from testbed import ControlPlane
from testbed.rest import RestClient

JOBS = f"/apis/{names.API_VERSION}"
HELD = "tests.dtj.dev/held"
OF_NO_SCHEDULER: JsonObject = {
    "spec": {"schedulerName": "nobody", "containers": [{"name": "trainer", "image": "example/trainer:1"}]}
}
"""A template of pods that no scheduler looks at, so that the operator has nothing to report of one."""

T = TypeVar("T")


@dataclass(frozen=True)
class Namespace:
    """One namespace of a cluster, and the pods of its jobs."""

    JOB_NAME: ClassVar[str] = Label.JOB_NAME
    """The label by which objects are known to be a job's."""

    plane: ControlPlane
    namespace: str

    @property
    def api(self) -> RestClient:
        """How the tests ask the API server."""
        return self.plane.api

    def eventually(self, check: Callable[[], T]) -> T:
        """Wait until ``check`` raises no AssertionError; what it returns then."""
        return eventually(check)

    def pods(self, name: str = "digits") -> dict[str, JsonObject]:
        """The pods with this job's label, by name."""
        return self._labelled("pods", name)

    def services(self, name: str = "digits") -> dict[str, JsonObject]:
        return self._labelled("services", name)

    def run_pods(self, name: str = "digits") -> None:
        """All pods of the job that have not ended run and are ready."""
        for body in self.pods(name).values():
            if dig(body, "status", "phase") not in ("Succeeded", "Failed"):
                played_pods.write(self.api, body, {})

    def hold_pods(self, name: str = "digits", *, hold: bool = True) -> None:
        """The job's pods stay when they are deleted, as if their containers took long to stop; or go then.

        They have a node: within 20 s, Kubernetes' garbage collector ends pods that stop and were never scheduled.
        """
        change: JsonObject = {"metadata": {"finalizers": [HELD] if hold else []}}
        for pod, body in self._labelled("pods", name).items():
            path = f"{self._at('/api/v1')}/pods/{pod}"
            self.api.request("PATCH", path, change)
            if hold and dig(body, "spec", "nodeName") is None:
                target: JsonObject = {"kind": "Node", "name": "node-1"}
                self.api.request("POST", f"{path}/binding", {"metadata": {"name": pod}, "target": target})

    def _labelled(self, plural: str, job: str) -> dict[str, JsonObject]:
        """The objects with the label of this job, or of any if its name is empty, by name."""
        path = f"{self._at('/api/v1')}/{plural}?labelSelector={self.JOB_NAME}{job and f'%3D{job}'}"
        found = objects(self.api.request("GET", path).get("items"))
        return {text(dig(body, "metadata", "name")): body for body in found}

    def _at(self, root: str) -> str:
        return f"{root}/namespaces/{self.namespace}"


class JobWorld(Namespace):
    """All jobs of a namespace, and what they own."""

    @classmethod
    def new(cls, plane: ControlPlane) -> JobWorld:
        """A new namespace in which the operator may work."""
        namespace = plane.new_namespace()
        grant(plane, namespace)
        return cls(plane, namespace)

    def await_watch(self, *, since: int) -> None:
        """Wait until a person's command watches something in this namespace; ``since`` is a mark of the audit log."""

        def watches() -> None:
            calls = self.plane.audit.calls(since=since, user="testbed-admin", namespace=self.namespace)
            assert any(call.verb == "watch" for call in calls)

        self.eventually(watches)

    def user(self, name: str, *verbs: str) -> Path:
        """The kubeconfig of a user who may do this to jobs of the namespace, and nothing else."""
        rule = {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": [*verbs]}
        self.plane.grant(name, [rule], namespace=self.namespace)
        return self.plane.kubeconfig_for(name)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def submit(self, name: str = "digits", *, roles: dict[str, int] | None = None, **arguments: object) -> Job:
        """Create a job; the arguments are those of :func:`builders.manifest`."""
        body = manifest(name, roles=roles, **arguments)  # type: ignore[arg-type]
        return Job.from_object(self.api.request("POST", self.path(), body))

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

    def path(self, name: str = "") -> str:
        """Where the API server has a job; without a name all of the namespace."""
        return f"{self._at(JOBS)}/{names.PLURAL}{name and f'/{name}'}"

    def body(self, name: str = "digits") -> JsonObject:
        return self.api.request("GET", self.path(name))

    def job(self, name: str = "digits") -> Job:
        return Job.from_object(self.body(name))

    def patch(self, change: JsonObject, name: str = "digits", *, subresource: str = "") -> None:
        """Merge ``change`` into the job, or into its status if that is the subresource."""
        self.api.request("PATCH", f"{self.path(name)}{subresource and f'/{subresource}'}", change)

    def change_spec(self, change: JsonObject, name: str = "digits") -> None:
        """Merge ``change`` into the job's spec."""
        self.patch({"spec": change}, name)

    def annotate(self, annotations: JsonObject, name: str = "digits") -> None:
        """Change nothing but the job's annotations."""
        self.patch({"metadata": {"annotations": annotations}}, name)

    def jobs(self) -> list[JsonObject]:
        """All jobs of the namespace."""
        return objects(self.api.request("GET", self.path()).get("items"))

    def delete_job(self, name: str = "digits") -> None:
        self.api.request("DELETE", self.path(name))

    def await_state(self, state: str, name: str = "digits") -> Job:
        """Wait until the job is in this state."""

        def reached() -> Job:
            job = self.job(name)
            assert job.status.state == state, f"{name} is {job.status.state} ({job.status.reason}), not {state}"
            return job

        return self.eventually(reached)

    def await_reason(self, reason: str, name: str = "digits") -> None:
        """Wait until the state of the job has this reason."""
        eventually_equal(lambda: self.job(name).status.reason, reason)

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

    def uids(self, name: str = "digits") -> dict[str, object]:
        """Which pods these are: UIDs by name."""
        return {pod: dig(body, "metadata", "uid") for pod, body in self.pods(name).items()}

    def config_maps(self, name: str = "digits") -> dict[str, JsonObject]:
        """The job's ConfigMaps, by name; with an empty name those of all jobs."""
        return self._labelled("configmaps", name)

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

    def run_pod(self, pod: str, *, ip: str = "") -> None:
        """The pod runs, and is ready; it can be reached where it has an address."""
        self._write(pod, None, ip=ip)

    def end_pod(self, pod: str, *, exit_code: int, message: str = "", reason: str = "") -> None:
        """The pod's container ends."""
        self._write(pod, exit_code, message=message, reason=reason)

    def _write(self, pod: str, code: int | None, **told: str) -> None:
        body = self.api.request("GET", f"{self._at('/api/v1')}/pods/{pod}")
        played_pods.write(self.api, body, played_pods.all_containers(body, code), **told)

    # -- others --------------------------------------------------------------------------------------------------

    def create(self, plural: str, body: JsonObject) -> JsonObject:
        """Create an object of the core group, as somebody else."""
        return self.api.request("POST", f"{self._at('/api/v1')}/{plural}", body)

    def get(self, plural: str, name: str) -> JsonObject | None:
        """An object of the core group; None where there is none."""
        return self.api.find(f"{self._at('/api/v1')}/{plural}/{name}")

    def delete(self, plural: str, name: str) -> None:
        self.api.request("DELETE", f"{self._at('/api/v1')}/{plural}/{name}", {"gracePeriodSeconds": 0})
