"""What makes a real API server refuse an operator's calls: rights, quotas, admission policies and webhooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dtj.api.json import JsonObject, dig
from support.job_world import JobWorld
from support.operator_process import set_rights
from support.waiting import eventually, eventually_true
from testbed import ApiError

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NEW_PODS = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
PROBE: JsonObject = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


@dataclass(frozen=True)
class Refusal:
    """Why something is refused, when in a job's life it begins to be, and what the job's status then says."""

    name: str
    begin: Callable[[JobWorld], None]
    end: Callable[[JobWorld], None]
    words: str
    """Part of a message of the job's conditions; empty where the API does not let it be."""

    moment: str = "start"
    """``start``, ``restart`` or ``suspend``."""


def right(missing: str, *, moment: str = "start", reported: bool = True) -> Refusal:
    """A right is missing, such as ``delete pods``."""
    verb, _, resource = missing.partition(" ")
    return Refusal(
        name=f"no right to {missing}",
        begin=lambda world: set_rights(world.plane, world.namespace, without=missing),
        end=lambda world: set_rights(world.plane, world.namespace),
        words=f'cannot {verb} resource "{resource}"' if reported else "",
        moment=moment,
    )


def quota(resource: str) -> Refusal:
    """A quota is used up."""

    def begin(world: JobWorld) -> None:
        world.create("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {resource: "0"}}})
        eventually_true(lambda: dig(world.get("resourcequotas", "none"), "status", "hard") is not None)

    return Refusal(
        name=f"quota of {resource}",
        begin=begin,
        end=lambda world: world.delete("resourcequotas", "none"),
        words="exceeded quota: none",
    )


def policy(reason: str) -> Refusal:
    """A ValidatingAdmissionPolicy refuses pods, with this reason."""

    def begin(world: JobWorld) -> None:
        verdict = {"expression": "false", "message": "not on a Friday", "reason": reason}
        spec = {"matchConstraints": {"resourceRules": NEW_PODS}, "validations": [verdict]}
        binding = {"policyName": world.namespace, "validationActions": ["Deny"], "matchResources": _only_in(world)}
        _make(world, "validatingadmissionpolicies", spec=spec)
        _make(world, "validatingadmissionpolicybindings", spec=binding)
        eventually(lambda: refuses_pods(world))

    return Refusal(
        name=f"policy, {reason}",
        begin=begin,
        end=lambda world: _remove(world, "validatingadmissionpolicybindings", "validatingadmissionpolicies"),
        words="not on a Friday",
    )


def broken_webhook() -> Refusal:
    """A validating webhook does not answer, and is set to fail closed."""

    def begin(world: JobWorld) -> None:
        hook = {
            "name": "nobody.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": NEW_PODS,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **_only_in(world),
        }
        _make(world, "validatingwebhookconfigurations", webhooks=[hook])
        eventually(lambda: refuses_pods(world))

    return Refusal(
        name="webhook that does not answer",
        begin=begin,
        end=lambda world: _remove(world, "validatingwebhookconfigurations"),
        words='failed calling webhook "nobody.example.com"',
    )


REFUSALS = (
    right("create pods"),
    right("create services"),
    right("patch distributedtrainingjobs/status", reported=False),
    right("create events", reported=False),
    right("patch services", moment="restart"),
    right("delete pods", moment="suspend"),
    right("delete services", moment="suspend"),
    quota("pods"),
    quota("services"),
    policy("Forbidden"),
    policy("Invalid"),
    broken_webhook(),
)


def _only_in(world: JobWorld) -> dict[str, object]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}}


def refuses_pods(world: JobWorld) -> None:
    """Policies, webhooks and the labels of a namespace take effect a moment after they are made."""
    try:
        world.api.request("POST", f"/api/v1/namespaces/{world.namespace}/pods?dryRun=All", PROBE)
    except ApiError:
        return
    raise AssertionError("pods are still taken")


def _make(world: JobWorld, kind: str, **body: object) -> None:
    world.api.request("POST", f"{ADMISSION}/{kind}", {"metadata": {"name": world.namespace}, **body})


def _remove(world: JobWorld, *kinds: str) -> None:
    for kind in kinds:
        world.api.request("DELETE", f"{ADMISSION}/{kind}/{world.namespace}")
