"""What of Kubeflow decides whether the operator can run TFJobs. Reads what the user may read."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from dtj.api.json import JsonObject, dig, items_of, objects, text
from dtj.client.overview import Part, all_of, one, part
from dtj.kube.client import KubeGateway
from dtj.kube.gateway import TFJOBS, Resource
from dtj.kube.tfjob_schema import keeps_record

DEPLOYMENTS: Final = Resource("apps/v1", "Deployment", "deployments")
WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeflow:
    """``keeps_record`` is whether the CRD of TFJobs has the field for the operator's record; no item without a CRD."""

    keeps_record: Part[bool]
    deployments: Part[JsonObject]
    webhooks: Part[JsonObject]


async def read_kubeflow(gateway: KubeGateway) -> Kubeflow:
    """All of it that the user may read."""
    keeps, deployments, webhooks = await asyncio.gather(
        part(_keeps_record(gateway)),
        part(all_of(gateway.list(DEPLOYMENTS, namespace=None))),
        part(all_of(gateway.list(WEBHOOKS, namespace=None))),
    )
    return Kubeflow(keeps_record=keeps, deployments=deployments, webhooks=webhooks)


async def _keeps_record(gateway: KubeGateway) -> tuple[bool, ...]:
    served = (await gateway.discover([TFJOBS])).served
    return await one(keeps_record(gateway)) if served else ()


def serves_tfjobs(deployment: JsonObject) -> bool:
    """Whether a Deployment is a training-operator that runs TFJobs. The chart asks the same."""
    label = text(dig(deployment, "metadata", "labels", "control-plane"))
    return dig(deployment, "spec", "replicas") != 0 and any(
        "training-operator" in f"{text(container.get('image'))} {label}" and _serves_tfjobs(container)
        for container in objects(dig(deployment, "spec", "template", "spec", "containers"))
    )


def _serves_tfjobs(container: JsonObject) -> bool:
    """By its schemes: all where it is given none."""
    words = " ".join(text(word) for field in ("command", "args") for word in items_of(container.get(field)))
    schemes = re.findall(r"-enable-scheme[= ](\S+)", words)
    return not schemes or "tfjob" in map(str.lower, schemes)
