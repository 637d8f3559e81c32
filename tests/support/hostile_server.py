"""An API server whose every word is chosen by somebody who wants to act on the terminal of whoever reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from pydantic import JsonValue

from builders import UID, at, manifest, stored
from dtj.api.json import JsonObject, dig, object_at, text
from dtj.api.names import Condition, Label
from loopback import JsonHandler, serving

PAYLOAD: Final = (
    "\x1b]52;c;Y3VybA==\x1b\\\x1b]0;title\x07\x1b[7;7H\x9b2J\x90q\x9c\x07\x08\x7f\x85\u2028\u202eabc\u2066\u200b"
    "\r\nFORGED\x1b]8;;http://x\x07\x9b3Jlink\x1b\\"
)
"""Writes the clipboard, takes a title, moves the cursor, clears the screen, rings, deletes, turns the direction of
writing around, begins a line of its own, and makes a link. Short enough for the value of a metric."""

LONG_COLOUR: Final = "\x1b[" + "9" * 5000 + "m"
"""Colours with a number that Python does not read."""

_OURS: Final = frozenset(
    {"apiVersion", "kind", "uid", "creationTimestamp", "lastTransitionTime", "startTime", "strategy", "type", "status"}
    | {"finishedAt", "startedAt", "deprecatedLastTimestamp", "eventTime"}
    | {"exitCode", "role", "resourceVersion", "continue"}
)
"""Fields by which a client finds out what is what, or that only an API server writes."""


def poisoned(value: JsonValue, *, within: str = "") -> JsonValue:
    """The value with the payload in each text, and in each name of a metric."""
    if isinstance(value, str):
        return value if within in _OURS else value + PAYLOAD
    if isinstance(value, list):
        return [poisoned(item, within=within) for item in value]
    if isinstance(value, dict):
        return {
            key + (PAYLOAD if within == "metrics" else ""): poisoned(item, within=key) for key, item in value.items()
        }
    return value


def job(name: str, *, ended: bool, poison_name: bool = False) -> JsonObject:
    """A job; every free word of it is hostile."""
    body = stored(manifest(roles={"worker": 2}))
    object_at(body, "spec")["tensorBoard"] = {}
    ends: list[JsonValue] = [
        {
            "type": str(Condition.FAILED),
            "status": "True",
            "reason": "R",
            "message": "m",
            "lastTransitionTime": at(),
        }
    ]
    going: list[JsonValue] = [
        {"type": str(kind), "status": status, "reason": "R", "message": "m", "lastTransitionTime": at()}
        for kind, status in ((Condition.PODS_READY, "False"), (Condition.PROGRESS_STALLED, "True"))
    ]
    cause: JsonObject = {"role": "worker", "index": 0, "pod": "p", "node": "n", "exitCode": 1, "reason": "r"}
    status: JsonObject = {
        "state": "S",
        "reason": "R",
        "ready": "0/2",
        "startTime": at(),
        "gang": "G",
        "conditions": ends if ended else going,
        "rootCause": {**cause, "class": "C", "message": "m", "logTail": "one\ntwo", "hint": "h"},
        "progress": {
            "phase": "p",
            "step": 1,
            "totalSteps": 2,
            "metrics": {"loss": "1"},
            "stragglers": ["s"],
            "corrupt": {"workers": ["w"], "step": 1, "variable": "v"},
        },
        "nodeLosses": [{"node": "n", "count": 2, "lastTime": at()}],
        "export": {"path": "/e", "formats": ["f"]},
    }
    found = poisoned({**body, "status": status})
    assert isinstance(found, dict)
    metadata: JsonObject = {"name": name + (PAYLOAD if poison_name else ""), "namespace": "default", "uid": UID}
    return {**found, "metadata": {**metadata, "creationTimestamp": at(), "resourceVersion": "7"}}


def pod(name: str, index: int = 0) -> JsonObject:
    """A pod of the job that is about to crash again; of another ``index`` one that has failed."""
    waiting: JsonObject = {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}
    ended: JsonObject = {"terminated": {"exitCode": 1, "reason": "r", "message": "m", "finishedAt": at()}}
    found = poisoned(
        {
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": {
                "message": "m",
                "reason": "r",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}],
                "containerStatuses": [{"name": "c", "state": ended if index else waiting, "lastState": ended}],
            },
        }
    )
    assert isinstance(found, dict)
    labels: JsonObject = {Label.JOB_NAME: "digits", Label.JOB_UID: UID, Label.ROLE: "worker", Label.INDEX: str(index)}
    metadata: JsonObject = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels}
    owner: JsonObject = {"uid": UID, "controller": True, "kind": "DistributedTrainingJob", "name": "digits"}
    object_at(found, "status")["phase"] = "Failed" if index else "Pending"
    return {**found, "metadata": {**metadata, "ownerReferences": [owner], "creationTimestamp": at()}}


def _event() -> JsonObject:
    body: JsonObject = {"reason": "r", "note": "n", "type": "Warning", "regarding": {"kind": "Pod", "name": "p"}}
    found = poisoned(body)
    assert isinstance(found, dict)
    return {**found, "metadata": {"name": "e", "namespace": "default", "uid": "e"}, "eventTime": at()}


def _named(kind: str) -> JsonObject:
    body: JsonObject = {"spec": {"resources": {"requests": {"storage": "1"}}, "ports": [{"name": "p", "port": 1}]}}
    found = poisoned({**body, "status": {"nodeInfo": {"kubeletVersion": "v"}}})
    assert isinstance(found, dict)
    return {**found, "metadata": {"name": f"{kind}{PAYLOAD}", "namespace": "default", "uid": kind}}


_LOG: Final = (
    f"2026-01-01T00:00:00Z Traceback {PAYLOAD}{LONG_COLOUR}\n2026-01-01T00:00:01Z ValueError{PAYLOAD}{LONG_COLOUR}\n"
)


class _Handler(JsonHandler):
    protocol_version = "HTTP/1.0"
    mode = "answers"

    def do_GET(self) -> None:
        """An object, a list, a watch or a log."""
        url = urlsplit(self.path)
        if self.mode != "answers":
            self._refuse()
        elif url.path.endswith("/log"):
            self.reply(_LOG.encode())
        elif "watch" in parse_qs(url.query):
            ended = job("digits", ended=True)
            self.reply(b"".join(json.dumps({"type": "MODIFIED", "object": ended}).encode() + b"\n" for _ in range(2)))
        else:
            self.reply(json.dumps(self._found(url.path.rstrip("/").split("/"))).encode())

    def do_POST(self) -> None:
        """What was sent, or an access review that allows all."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.mode != "answers":
            self._refuse()
        elif "reviews" in self.path:
            self.reply(json.dumps({**body, "status": {"allowed": True}}).encode())
        else:
            self.reply(json.dumps(job(text(dig(body, "metadata", "name")), ended=False)).encode())

    do_PATCH = do_DELETE = do_POST

    def _found(self, words: list[str]) -> JsonObject:
        last, kind = words[-1], words[-2]
        lists = {
            "distributedtrainingjobs": [job("digits", ended=True), job("other", ended=False, poison_name=True)],
            "pods": [pod("digits-worker-0"), pod("digits-worker-1", 1)],
            "events": [_event()],
        }
        if last in lists:
            items: list[JsonValue] = [*lists[last]]
            return {"metadata": {"resourceVersion": "7"}, "items": items}
        if kind == "distributedtrainingjobs":
            return job(last, ended=last == "digits")
        if kind == "pods":
            return pod(last)
        if last.endswith("s"):
            return {"metadata": {"resourceVersion": "7"}, "items": [_named(last)]}
        return {**_named(last), "gitVersion": f"v1{PAYLOAD}", "resources": [], "groups": []}

    def _refuse(self) -> None:
        if self.mode == "refuses":
            message = f"no{PAYLOAD}"
            self.reply(json.dumps({"kind": "Status", "reason": f"R{PAYLOAD}", "message": message}).encode(), status=403)
        elif self.mode == "lacks":
            self.reply(b"404 page not found\n", status=404)
        elif self.mode == "redirects":
            self.send_response(302)
            self.send_header("Location", "https://login.example.com/start?secret=1")
            self.end_headers()
        else:
            self.reply(f"<html>{PAYLOAD}</html>".encode(), status=500)


@contextmanager
def hostile_server(mode: str) -> Iterator[str]:
    """Its address. It ``answers``, ``refuses`` (a Status), ``lacks`` our resource, ``redirects`` to a login, or
    ``fails`` (no JSON)."""
    handler = type("Handler", (_Handler,), {"mode": mode})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
