"""Stand-ins for the APIs of Kueue, Volcano and the scheduler plugins, and for what Kueue says through its own.

Their programs are not to be had here, so the CRDs are minimal: they hold what is written, and check nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dtj.api.json import JsonObject
from support.gang_worlds import kueue_condition
from support.job_world import JobWorld
from support.waiting import eventually, eventually_equal
from testbed import ApiError, ControlPlane

KUEUE = "kueue.x-k8s.io/v1beta2"
VOLCANO = "scheduling.volcano.sh/v1beta1"
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"

VOLCANO_CRDS = Path(__file__).parents[1] / "neighbours" / "crds"
"""The real CRD of Volcano."""

_KINDS = (
    (KUEUE, "Workload", "workloads", "Namespaced"),
    (KUEUE, "LocalQueue", "localqueues", "Namespaced"),
    (KUEUE, "ResourceFlavor", "resourceflavors", "Cluster"),
    (KUEUE, "WorkloadPriorityClass", "workloadpriorityclasses", "Cluster"),
    (VOLCANO, "PodGroup", "podgroups", "Namespaced"),
    (COSCHEDULING, "PodGroup", "podgroups", "Namespaced"),
)


_ADMITTED = (kueue_condition("QuotaReserved"), kueue_condition("Admitted"))


def install(plane: ControlPlane) -> None:
    """Have the API server serve them. That they are there already is no error."""
    plane.apply(*(_crd(*kind) for kind in _KINDS))

    def served() -> None:
        try:
            for version, _, plural, _ in _KINDS:
                plane.api.request("GET", f"/apis/{version}/{plural}")
        except ApiError as error:
            raise AssertionError(str(error)) from error
        groups = {group["name"] for group in plane.api.request("GET", "/apis")["groups"]}
        assert groups >= {version.partition("/")[0] for version, *_ in _KINDS}

    eventually(served)


def _crd(version: str, kind: str, plural: str, scope: str) -> JsonObject:
    group, _, name = version.partition("/")
    anything: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served: JsonObject = {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    names: JsonObject = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    metadata: JsonObject = {
        "name": f"{plural}.{group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
    }


@dataclass(frozen=True)
class Groups:
    """The PodGroups or Workloads of one API in one namespace."""

    world: JobWorld
    version: str
    plural: str

    def get(self, name: str = "digits") -> JsonObject | None:
        """One of them; None where there is none."""
        return self.world.api.find(f"{self._path}/{name}")

    def await_one(self) -> JsonObject:
        """Wait until it is there."""

        def there() -> JsonObject:
            found = self.get()
            assert found is not None, f"no {self.plural} digits"
            return found

        return eventually(there)

    def await_none(self, name: str = "digits") -> None:
        """Wait until it is gone."""
        eventually_equal(lambda: self.get(name), None)

    def create(self, body: JsonObject) -> None:
        self.world.api.request("POST", self._path, body)

    def delete(self, name: str = "digits") -> None:
        self.world.api.request("DELETE", f"{self._path}/{name}")

    @property
    def _path(self) -> str:
        return f"/apis/{self.version}/namespaces/{self.world.namespace}/{self.plural}"

    # -- what Kueue does ---------------------------------------------------------------------------------------

    def admit(self, name: str = "digits", *, flavor: str | None = None) -> None:
        """Reserve quota, and admit."""
        flavors: JsonObject = {"cpu": flavor} if flavor is not None else {}
        assignment: JsonObject = {"name": "worker", "flavors": flavors, "count": 1}
        admission: JsonObject = {"clusterQueue": "all", "podSetAssignments": [assignment]}
        self._say(name, {"admission": admission, "conditions": [*_ADMITTED]})

    def keep_out(self, name: str = "digits", *, message: str) -> None:
        """Reserve no quota, and say why."""
        self._say(name, {"conditions": [kueue_condition("QuotaReserved", "False", reason="Pending", message=message)]})

    def evict(self, name: str = "digits", *, message: str) -> None:
        """Want the quota back."""
        self._say(name, {"conditions": [*_ADMITTED, kueue_condition("Evicted", reason="Preempted", message=message)]})

    def _say(self, name: str, status: JsonObject) -> None:
        self.world.api.request("PATCH", f"{self._path}/{name}/status", {"status": status})
