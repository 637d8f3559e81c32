"""The chart's policy for TFJobs, bound in one namespace of a cluster, and what the API server answers by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from bad_tfjobs import REFUSED, tfjob
from dtj.api.json import JsonObject
from support.chart import CHART
from support.waiting import eventually
from testbed import ControlPlane


def apply(cluster: ControlPlane, namespace: str, body: JsonObject, *options: str) -> str:
    """What `kubectl apply` says: empty where it takes the manifest. A null is sent by server-side apply alone."""
    text = json.dumps(body)
    how = ["--server-side", "--force-conflicts"] if "null" in text else []
    where = ("--namespace", namespace, "--filename", "-")
    done = cluster.kubectl("apply", *how, *options, *where, stdin=text, check=False)
    return "" if done.returncode == 0 else done.stderr


def wrong_answers(cluster: ControlPlane, namespace: str) -> dict[str, str]:
    """The answers to broken rules that lack the line of the operator, by the names of the rules."""
    said = {case: apply(cluster, namespace, body) for case, (body, _) in REFUSED.items()}
    return {case: answer or "accepted" for case, answer in said.items() if REFUSED[case][1] not in answer}


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
