"""The Helm chart, as `helm` sees it: rendered, examined, and installed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from dtj.api.json import JsonObject, dig, objects, text
from dtj.kube.rbac import PolicyRule
from patience import PATIENCE_SECONDS

CHART = Path(__file__).parents[2] / "charts" / "dtj"
RELEASE = "dtj"
ALL_OF_TFJOBS: JsonObject = {
    "enabled": True,
    "cleanPodPolicy": "Running",
    "gangScheduler": "Volcano",
    "clusterDomain": "cluster.local",
    "kueue": "Own",
}
"""Each value about TFJobs that is no object, other than its default."""


class HelmError(Exception):
    """helm refused; the message holds its words."""


@dataclass(frozen=True)
class Granted:
    """One verb on one resource, as a role grants it and the audit log counts it."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


@dataclass(frozen=True, kw_only=True)
class Helm:
    """The program helm with a home of its own, against the cluster of ``kubeconfig`` where it needs one."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, values: JsonObject | None = None) -> str:
        """What a helm command prints. Raises HelmError."""
        folders = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        given = ["--values=-"] if values is not None else []
        done = subprocess.run(
            [self.program, *arguments, *given],
            input=json.dumps(values) if values is not None else None,
            env={**os.environ, **folders, "KUBECONFIG": str(self.kubeconfig or "/dev/null")},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        if done.returncode != 0:
            raise HelmError(done.stderr.strip())
        return done.stdout

    def render(self, values: JsonObject | None = None, *, namespace: str = "dtj-system") -> str:
        """The chart's manifests as text."""
        return self.run("template", RELEASE, str(CHART), f"--namespace={namespace}", values=values or {})

    def objects(self, values: JsonObject | None = None, *, namespace: str = "dtj-system") -> list[JsonObject]:
        """The chart's objects."""
        return [body for body in yaml.safe_load_all(self.render(values, namespace=namespace)) if body]


def of_kind(bodies: Iterable[JsonObject], *kinds: str) -> list[JsonObject]:
    """The objects of these kinds, without those of `helm test`."""
    return [body for body in bodies if body["kind"] in kinds and not is_hook(body)]


def arguments(bodies: Iterable[JsonObject]) -> list[str]:
    """What the operator's container is started with."""
    (deployment,) = of_kind(bodies, "Deployment")
    given = dig(deployment, "spec", "template", "spec", "containers", 0, "args")
    assert isinstance(given, list)
    return [str(argument) for argument in given]


def operator_rules(bodies: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    """The rules that bind the operator's service account, by namespace; those of the whole cluster under ``*``."""
    bodies = list(bodies)
    bound = of_kind(bodies, "RoleBinding", "ClusterRoleBinding")
    names = {(dig(binding, "metadata", "namespace"), dig(binding, "roleRef", "name")) for binding in bound}
    found: dict[str, list[JsonObject]] = {}
    for role in of_kind(bodies, "Role", "ClusterRole"):
        namespace = dig(role, "metadata", "namespace")
        if (namespace, dig(role, "metadata", "name")) in names:
            found.setdefault(text(namespace, "*"), []).extend(objects(role["rules"]))
    return found


def granted(rules: Iterable[JsonObject]) -> set[Granted]:
    """Each single right of a list of rules."""
    return {
        Granted(text(group), text(resource), text(verb))
        for rule in rules
        for group in _list(rule["apiGroups"])
        for resource in _list(rule["resources"])
        for verb in _list(rule["verbs"])
    }


def listed(*tables: Iterable[PolicyRule]) -> set[Granted]:
    """Each single right of the operator's own tables."""
    return {Granted(right.group, right.path, verb) for table in tables for right in table for verb in right.verbs}


def is_hook(body: JsonObject) -> bool:
    """Whether helm runs the object at a moment of its own, as the pod of `helm test`."""
    return dig(body, "metadata", "annotations", "helm.sh/hook") is not None


def _list(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else []
