"""Reads the setting that lists the peers that may connect to the pods of jobs."""

from __future__ import annotations

import json
from typing import Final

from dtj.api.json import JsonObject
from dtj.core.platform import JobAccess

_FIELDS: Final = ("statusFrom", "tensorBoardFrom")
_SELECTORS: Final = ("podSelector", "namespaceSelector", "ipBlock")


def job_access(text: str) -> JobAccess:
    """The setting from its JSON, such as ``{"statusFrom": [{"podSelector": {}}]}``; ``{}`` lets in nobody.

    Peers are those of NetworkPolicy (networking.k8s.io/v1); what is in their selectors is checked by the API server.
    Raises ValueError, which names the field.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"must be a JSON object with {' and '.join(_FIELDS)}")
    for field in given:
        if field not in _FIELDS:
            raise ValueError(f"{field}: unknown field; the fields are {' and '.join(_FIELDS)}")
    return JobAccess(
        status=_peers("statusFrom", given.get("statusFrom")),
        tensorboard=_peers("tensorBoardFrom", given.get("tensorBoardFrom")),
    )


def _peers(field: str, given: object) -> tuple[JsonObject, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ValueError(f"{field}: must be a list of NetworkPolicy peers")
    for index, peer in enumerate(given):
        known = (
            isinstance(peer, dict)
            and peer
            and all(name in _SELECTORS and isinstance(value, dict) for name, value in peer.items())
        )
        if not known:
            # A peer without any selector would let everybody in.
            raise ValueError(f"{field}[{index}]: must be an object with {', '.join(_SELECTORS)}")
    return tuple(given)
