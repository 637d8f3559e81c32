"""Stored jobs of an older version, without touching the CRD that all tests share: a CRD of another group, with the
schema of that version first, and then with ours."""

from __future__ import annotations

import copy
from collections.abc import Callable

from builders import manifest
from dtj.api import names
from dtj.api.crd import custom_resource_definition
from dtj.api.json import JsonObject
from support.waiting import eventually_true
from testbed import ApiError, ControlPlane

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_MERGE = "application/merge-patch+json"


class ChangingSchema:
    """A kind with the schema of jobs in a group of its own. ``older`` turns our schema into that of older versions."""

    def __init__(self, cluster: ControlPlane, namespace: str, older: Callable[[JsonObject], None]) -> None:
        self._api, self._group = cluster.api, f"{namespace}.example"
        self.jobs = f"/apis/{self._group}/{names.VERSION}/namespaces/{namespace}/{names.PLURAL}"
        definition = in_another_group(self._group)
        older(schema_of(definition))
        self._api.request("POST", _CRDS, definition)
        eventually_true(self._is_served)

    def create(self, name: str, **spec: object) -> JsonObject:
        """A new job; its fields as those of :func:`builders.manifest`."""
        return self._api.request("POST", self.jobs, {**manifest(name, **spec), "apiVersion": self._version})  # type: ignore[arg-type]

    def patch(self, name: str, change: JsonObject, *, status: bool = False, dry_run: bool = False) -> JsonObject:
        """A merge patch of a job, or of its status."""
        path = f"{self.jobs}/{name}{'/status' * status}{'?dryRun=All' * dry_run}"
        return self._api.request("PATCH", path, change, content_type=_MERGE)

    def get(self, name: str) -> JsonObject:
        return self._api.request("GET", f"{self.jobs}/{name}")

    def upgrade(self, is_in_force: Callable[[], bool]) -> None:
        """Our schema from now on; ``is_in_force`` finds out whether the API server uses it."""
        definition = in_another_group(self._group)
        self._api.request("PATCH", f"{_CRDS}/{definition['metadata']['name']}", definition, content_type=_MERGE)  # type: ignore[index,call-overload]
        eventually_true(is_in_force)

    def remove(self) -> None:
        self._api.request("DELETE", f"{_CRDS}/{names.PLURAL}.{self._group}")

    def refuses(self, **spec: object) -> bool:
        """Whether a new job with these fields is refused in a dry run."""
        body = {**manifest("probe", **spec), "apiVersion": self._version}  # type: ignore[arg-type]
        try:
            self._api.request("POST", f"{self.jobs}?dryRun=All", body)
        except ApiError as error:
            return error.code == 422
        return False

    @property
    def _version(self) -> str:
        return f"{self._group}/{names.VERSION}"

    def _is_served(self) -> bool:
        try:
            self._api.request("GET", self.jobs)
        except ApiError:
            return False
        return True


def in_another_group(group: str) -> JsonObject:
    """Our CRD, with a group of its own."""
    definition = copy.deepcopy(custom_resource_definition())
    spec = definition["spec"]
    assert isinstance(spec, dict)
    assert isinstance(spec["names"], dict)
    del spec["names"]["shortNames"], spec["names"]["categories"]
    spec["group"] = group
    definition["metadata"] = {"name": f"{names.PLURAL}.{group}"}
    return definition


def schema_of(definition: JsonObject) -> JsonObject:
    """The schema of the only version of a CRD."""
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]  # type: ignore[index,call-overload,return-value]


def without_rule(schema: JsonObject, message: str) -> None:
    """Remove the rule with this message, wherever it is."""
    rules = schema.get("x-kubernetes-validations")
    if isinstance(rules, list):
        schema["x-kubernetes-validations"] = [rule for rule in rules if rule["message"] != message]  # type: ignore[index,call-overload]
    for value in schema.values():
        if isinstance(value, dict):
            without_rule(value, message)
