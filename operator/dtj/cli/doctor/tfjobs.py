"""Whether the operator can run TFJobs, and is alone in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dtj.api.json import JsonObject, dig, name_of, objects, text
from dtj.api.tfjob.names import RECORD
from dtj.cli.doctor.findings import Finding, fail, ok, unknown
from dtj.client.installation import Installation
from dtj.client.kubeflow import Kubeflow, serves_tfjobs
from dtj.kube.gateway import TFJOBS

WEBHOOK: Final = "validator.tfjob.training-operator.kubeflow.org"
_UPGRADE: Final = "helm upgrade with tfjob.crd.enabled=true and --take-ownership"


def findings(found: Installation) -> Iterator[Finding]:
    """What is to be said of TFJobs; nothing where no operator runs them."""
    if found.kubeflow is not None:
        yield _crd(found.kubeflow)
        yield from _others(found.kubeflow)


def _crd(kubeflow: Kubeflow) -> Finding:
    keeps = kubeflow.keeps_record
    if keeps.unread:
        return unknown(keeps.unread)
    if not keeps.items:
        return fail(f"there is no CRD {TFJOBS.crd}", _UPGRADE)
    if not keeps.items[0]:
        return fail(f"the CRD {TFJOBS.crd} drops status.{RECORD}: the operator runs no TFJob", _UPGRADE)
    return ok(f"the CRD {TFJOBS.crd} has a place for the operator's record")


def _others(kubeflow: Kubeflow) -> Iterator[Finding]:
    """A training-operator that runs TFJobs, too, and its webhook, which refuses all of them where it does not run."""
    deployments, webhooks = kubeflow.deployments, kubeflow.webhooks
    if deployments.unread:
        yield unknown(f"whether a training-operator serves TFJobs: {deployments.unread}")
        return
    others = [each for each in deployments.items if serves_tfjobs(each)]
    for other in others:
        words = f"{name_of(other)} in namespace {_namespace(other)} still serves TFJobs: both make the pods of each"
        yield fail(words, "start it with --enable-scheme for its other kinds, or scale it to 0")
    if webhooks.unread:
        yield unknown(f"whether a webhook refuses TFJobs: {webhooks.unread}")
        return
    served = {_namespace(other) for other in others}
    idle = [
        configuration
        for configuration in webhooks.items
        for webhook in objects(configuration.get("webhooks"))
        if webhook.get("name") == WEBHOOK
        and webhook.get("failurePolicy") != "Ignore"
        and dig(webhook, "clientConfig", "service", "namespace") not in served
    ]
    for configuration in idle:
        words = f"the webhook {WEBHOOK} refuses each TFJob: no training-operator answers it"
        yield fail(words, f"remove its entry: kubectl edit validatingwebhookconfiguration {name_of(configuration)}")
    if not others and not idle:
        yield ok("no training-operator serves TFJobs")


def _namespace(body: JsonObject) -> str:
    return text(dig(body, "metadata", "namespace"))
