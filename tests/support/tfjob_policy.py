"""The chart's policy for TFJobs, bound in one namespace of a cluster, and what the API server answers by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from bad_tfjobs import REFUSED, tfjob
from dtj.api.json import JsonObject
from support.chart import CHART
from support.server_answers import apply
from support.waiting import eventually
from testbed import ControlPlane

LINES = {case: (body, [line]) for case, (body, line) in REFUSED.items()}
"""The TFJobs that break a rule, each with the line in which the operator says so."""


@contextmanager
def guarding(cluster: ControlPlane, namespace: str) -> Iterator[None]:
    """The policy guards this namespace alone."""
    policy = yaml.safe_load((CHART / "files" / "tfjob-policy.yaml").read_text())
    policy["metadata"] = {"name": namespace}
    binding: JsonObject = {
        "apiVersion": policy["apiVersion"],
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {
            "policyName": namespace,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    }
    cluster.apply(policy, binding)
    eventually(lambda: _is_refused(cluster, namespace, tfjob("refused", spec={"successPolicy": "no"})))
    yield
    cluster.kubectl("delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", namespace)


def _is_refused(cluster: ControlPlane, namespace: str, body: JsonObject) -> None:
    """In a dry run: a job that is taken, and then does not change, would be taken for ever."""
    assert "denied request" in apply(cluster, namespace, body, "--dry-run=server")
