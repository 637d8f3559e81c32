"""The watch on jobs, by kopf: a few settings, a login, and one handler that stores and enqueues.

kopf is used for what it does without writing: with ``on.event`` alone it adds no finalizer, no annotation and no
patch to a job. Anything that the handler raised would be logged and forgotten, so it does nothing that can fail,
and a value that it returned would be written into the job's status, so it returns None.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import kopf

from dtj.api import names
from dtj.engine.feed import JobFeed
from dtj.kube.backoff import Backoff
from dtj.kube.config import ConnectionSource

_RETRY = re.compile(r"^Request attempt #(\d+)")


def make_registry(feed: JobFeed, source: ConnectionSource) -> kopf.OperatorRegistry:
    """The handlers, in a registry of their own: kopf's global one would outlive us."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=5.0)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await connection_info(source)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def take_over(event: kopf.RawEvent, **_: Any) -> None:
        body: Any = event["object"]
        if event["type"] == "DELETED":
            feed.remove(body)
        else:
            feed.put(body)

    return registry


def make_settings(*, namespaced: bool) -> kopf.OperatorSettings:
    """kopf's settings, as far as they differ from its own."""
    settings = kopf.OperatorSettings()
    # Where this ends, kopf ends the process; an API server may be away for hours.
    settings.networking.error_backoffs = Backoff(base=0.5, cap=30.0)
    # Before it lists anew, since the API server has forgotten its place (410): by default a tenth of a second.
    settings.watching.reconnect_backoff = 1.0
    settings.networking.request_timeout = 60.0
    settings.networking.connect_timeout = 10.0
    # Its events are not aggregated, and of a type that is no event type; ours are dtj.kube.events.
    settings.posting.enabled = False
    # Looking for namespaces and CRDs needs rights in the whole cluster.
    settings.scanning.disabled = namespaced
    return settings


async def connection_info(source: ConnectionSource) -> kopf.ConnectionInfo:
    """The connection of our own gateway, in kopf's terms. kopf asks again when the API server answers 401."""
    configuration = await source.load()
    header = await configuration.get_api_key_with_prefix("BearerToken") or ""
    scheme, _, token = header.rpartition(" ")
    extra = getattr(configuration, "client_session_kwargs", None) or {}
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
        trust_env=extra.get("trust_env", True),
    )


class QuietRetries(logging.Filter):
    """Makes one warning of the errors that kopf logs at each attempt of a request during an outage."""

    def filter(self, record: logging.LogRecord) -> bool:
        attempt = _RETRY.match(record.getMessage()) if record.name.startswith("kopf") else None
        if attempt is None:
            return True
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return int(attempt[1]) == 1
