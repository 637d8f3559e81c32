"""What a real API server answers to manifests, next to what it should."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from dtj.api.json import JsonObject
from testbed import ControlPlane


def apply(cluster: ControlPlane, namespace: str, body: JsonObject, *options: str) -> str:
    """What `kubectl apply` says: empty where it takes the manifest.

    A null is sent by server-side apply: client-side apply drops it before any server can see it.
    """
    text = json.dumps(body)
    how = ["--server-side", "--force-conflicts"] if "null" in text else []
    where = ("--namespace", namespace, "--filename", "-")
    done = cluster.kubectl("apply", *how, *options, *where, stdin=text, check=False)
    return "" if done.returncode == 0 else done.stderr


def wrong_answers(answer: Callable[[JsonObject], str], cases: Mapping[str, tuple[JsonObject, Iterable[str]]]) -> str:
    """The cases that a server takes, or that it refuses without all of their words; empty if there are none."""
    wrong = {}
    for case, (body, words) in cases.items():
        said = answer(body)
        missing = [each for each in words if each not in said]
        if missing or not said:
            wrong[case] = {"missing": missing, "answer": said or "accepted"}
    return json.dumps(wrong, indent=1) if wrong else ""
