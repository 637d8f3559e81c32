"""TFJobs of one namespace, as a user sees them, and their pods."""

from __future__ import annotations

from collections.abc import Mapping

import bad_tfjobs
from dtj.api.json import JsonObject, dig, objects
from support import played_pods
from support.job_world import Namespace
from support.waiting import eventually
from testbed.peers import TFJOBS

LABELS = "training.kubeflow.org"


def tfjob(name: str, roles: Mapping[str, int], *, restarts: str = "Never", **run_policy: object) -> JsonObject:
    """A TFJob of these roles."""
    specs = {kind: bad_tfjobs.role(count, restartPolicy=restarts) for kind, count in roles.items()}
    return bad_tfjobs.tfjob(name, spec={"runPolicy": run_policy}, **specs)


class TfJobWorld(Namespace):
    """All TFJobs of a namespace, and what they own."""

    JOB_NAME = f"{LABELS}/job-name"

    # -- jobs ----------------------------------------------------------------------------------------------------

    def create(self, body: JsonObject) -> JsonObject:
        """Make a TFJob."""
        return self.api.request("POST", self._jobs, body)

    def job(self, name: str) -> JsonObject:
        """It as it is."""
        return self.api.request("GET", f"{self._jobs}/{name}")

    def jobs(self) -> list[JsonObject]:
        """All of the namespace."""
        return objects(self.api.request("GET", self._jobs).get("items"))

    def change(self, name: str, change: JsonObject) -> None:
        """Merge a change into it."""
        self.api.request("PATCH", f"{self._jobs}/{name}", change)

    def suspend(self, name: str, *, suspend: bool) -> None:
        """Set ``runPolicy.suspend``."""
        self.change(name, {"spec": {"runPolicy": {"suspend": suspend}}})

    def delete(self, name: str) -> None:
        """Delete it."""
        self.api.request("DELETE", f"{self._jobs}/{name}")

    def condition(self, name: str, kind: str) -> JsonObject:
        """Its condition of that type; empty where there is none."""
        found = objects(dig(self.job(name), "status", "conditions"))
        return next((each for each in found if each.get("type") == kind), {})

    def await_condition(self, name: str, kind: str, status: str = "True") -> JsonObject:
        """Wait until this condition of the job has that status; the job then."""

        def reached() -> JsonObject:
            job = self.job(name)
            found = {each.get("type"): each.get("status") for each in objects(dig(job, "status", "conditions"))}
            assert found.get(kind) == status, f"{name} is not {kind}={status}: {dig(job, 'status')}"
            return job

        return eventually(reached)

    def await_counts(self, name: str, role: str, **counts: int) -> None:
        """Wait until the job counts its replicas so; what is not named is 0."""

        def reached() -> None:
            found = dig(self.job(name), "status", "replicaStatuses", role)
            assert isinstance(found, dict), f"{name} has no status of {role}"
            kinds = ("active", "succeeded", "failed")
            assert {kind: found.get(kind, 0) for kind in kinds} == {kind: counts.get(kind, 0) for kind in kinds}

        eventually(reached)

    # -- what it owns --------------------------------------------------------------------------------------------

    def all_pods(self, name: str) -> dict[str, JsonObject]:
        """Its pods, by name."""
        return super().pods(name)

    def pods(self, name: str = "digits") -> dict[str, JsonObject]:
        """Its pods that are not being deleted, by name."""
        return {key: pod for key, pod in self.all_pods(name).items() if "deletionTimestamp" not in _metadata(pod)}

    def await_pods(self, name: str, *wanted: str) -> dict[str, JsonObject]:
        """Wait until its pods are exactly these: their names without the job's."""

        def there() -> dict[str, JsonObject]:
            found = self.pods(name)
            assert set(found) == {f"{name}-{each}" for each in wanted}, f"the pods are {sorted(found)}, not {wanted}"
            return found

        return eventually(there)

    # -- kubelets ------------------------------------------------------------------------------------------------

    def end_pod(self, pod: str, code: int, **of_container: int | None) -> None:
        """The containers of a pod end with this code, but for those that are named."""
        body = self.api.request("GET", f"{self._at('/api/v1')}/pods/{pod}")
        played_pods.write(self.plane.api, body, {**played_pods.all_containers(body, code), **of_container})

    @property
    def _jobs(self) -> str:
        return f"{TFJOBS}/namespaces/{self.namespace}/tfjobs"


def _metadata(body: JsonObject) -> JsonObject:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return metadata
