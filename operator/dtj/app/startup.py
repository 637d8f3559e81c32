"""Waiting until there is something to operate on: an API server that answers, with our CRD installed."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError
from dtj.kube.gateway import JOBS, Resource
from dtj.kube.waiting import Backoff

log = logging.getLogger(__name__)


class CredentialsRefused(Exception):
    """The API server refuses our credentials; waiting would not help."""


async def wait_until_served(gateway: KubeGateway, resource: Resource = JOBS) -> None:
    """Return as soon as the API server serves these jobs; until then log what is missing, once.

    Raises CredentialsRefused.
    """
    reported = ""
    for delay in Backoff(base=0.5, cap=5.0):
        missing = await _find_missing(gateway, resource)
        if missing is None:
            break
        what, detail = missing
        if what != reported:
            log.warning("%s: %s; waiting for it", what, detail)
            reported = what
        await asyncio.sleep(delay)
    if reported:
        log.info("%s serves %s now", gateway.server, resource.crd)


async def _find_missing(gateway: KubeGateway, resource: Resource) -> tuple[str, str] | None:
    """What is not there yet, and a detail, which may change from one attempt to the next and is no news then."""
    try:
        if (await gateway.discover([resource])).served:
            return None
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise CredentialsRefused(f"{gateway.server} does not accept our credentials: {error.message}") from error
        return "the API server does not answer", error.message
    remedy = "kubectl apply -f crds/" if resource == JOBS else "run helm upgrade with tfjob.crd.enabled=true"
    return f"CustomResourceDefinition {resource.crd} is not installed", remedy
