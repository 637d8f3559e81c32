"""Reads the API server's audit log: which calls did a client make?

The API server logs a write twice: when it is received, before it is carried out, and when it is answered, perhaps a
moment after the client has the answer. So a reader knows which answers are still to come, and can wait for them: the
counts are exact, without sleeping. Reads are logged once.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

# Both stages of a write, the answer alone of a read; long-running reads (watches) are logged when they begin and end.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Metadata", "verbs": sorted(WRITES)}, {"level": "Metadata", "omitStages": ["RequestReceived"]}],
}


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """One call. Strings are "" where the call has no such part; `code` is None for a call without an answer.

    `logged` is when it was answered, or received where it has no answer, by the API server's clock.
    """

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user: str
    code: int | None
    dry_run: bool
    logged: datetime

    def __str__(self) -> str:
        path = "/".join(part for part in (self.resource, self.namespace, self.name, self.subresource) if part)
        return f"{self.verb} {path} -> {self.code}{' (dry run)' if self.dry_run else ''}"


class AuditLog:
    """The audit log of one API server, across its restarts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """The present end of the log, to be given as `since` later."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def writes(self, *, since: int = 0, user: str = "", namespace: str = "") -> list[AuditRecord]:
        """The writes received after the mark `since`, in order of arrival, once all of them are answered.

        `user` and `namespace` are matched whole; "" matches all. Dry runs change nothing and are left out. A write
        still unanswered after 5 seconds (the API server was killed) has code None.
        """
        limit = time.monotonic() + 5
        while True:
            found = self.calls(since=since, user=user, namespace=namespace)
            writes = [record for record in found if record.verb in WRITES and not record.dry_run]
            if all(record.code is not None for record in writes) or time.monotonic() > limit:
                return writes
            time.sleep(0.01)

    def calls(self, *, since: int = 0, user: str = "", namespace: str = "") -> list[AuditRecord]:
        """All calls after `since` that are logged by now, including reads and unanswered calls."""
        return [
            record
            for record in parse(self._lines(since))
            if user in ("", record.user) and namespace in ("", record.namespace)
        ]

    def _lines(self, since: int) -> Iterator[str]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            # A mark may lie within a line that was being written; that line began before it.
            file.seek(max(0, since - 1))
            if since and file.read(1) != b"\n":
                file.readline()
            for line in file:
                # A line without its end is still being written.
                if line.endswith(b"\n"):
                    yield line.decode()


def parse(lines: Iterator[str]) -> list[AuditRecord]:
    """The calls that audit log lines tell of, one record each, in order of their first line.

    A call whose first line is an answer to a write received before the first of `lines` is left out.
    """
    calls: dict[str, AuditRecord] = {}
    for line in lines:
        event = json.loads(line)
        key = event["auditID"]
        record = _record(event)
        if key not in calls and record.verb in WRITES and event["stage"] != "RequestReceived":
            continue
        calls[key] = record
    return list(calls.values())


def _record(event: dict[str, Any]) -> AuditRecord:
    target = event.get("objectRef") or {}
    query = parse_qs(urlsplit(event["requestURI"]).query)
    return AuditRecord(
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        user=event.get("user", {}).get("username", ""),
        code=event.get("responseStatus", {}).get("code"),
        dry_run="All" in query.get("dryRun", []),
        logged=datetime.fromisoformat(event["stageTimestamp"]),
    )
