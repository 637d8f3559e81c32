"""What an API server might tell of jobs: one succeeded, one was restarted and failed, and members of one changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from builders import NOW, UID, at, manifest, stored
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Label
from dtj.cli.report.evidence import Evidence, Log, Unread, scalars_of
from dtj.client.overview import Event

HOSTILE: Final = """<script>fetch("https://example.invalid")</script><img src=x onerror=alert(1)>"""
"""What a program may print."""

SECRET: Final = "correct-horse-battery"


def pod(name: str, status: JsonObject | None = None, *, attempt: int = 1, created: float = 0) -> JsonObject:
    """A pod of the job digits; ``status`` is made by the functions below."""
    role, _, index = name.partition("-r")[0].rpartition("-")
    container: JsonObject = {
        "name": "trainer",
        "image": "example/trainer:1",
        "env": [{"name": "API_TOKEN", "value": SECRET}, {"name": "EPOCHS", "value": "5"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"digits-{name}",
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": at(created),
            "labels": {
                Label.ATTEMPT: str(attempt),
                Label.JOB_NAME: "digits",
                **({Label.ROLE: role, Label.INDEX: index} if index.isdecimal() else {}),
            },
            "ownerReferences": [{"uid": UID, "controller": True}],
        },
        "spec": {"containers": [container]},
        "status": status or {},
    }


def ran(start: float, end: float, code: int, reason: str = "") -> JsonObject:
    """The status of a pod that has ended."""
    terminated: JsonObject = {"exitCode": code, "reason": reason, "startedAt": at(start), "finishedAt": at(end)}
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "containerStatuses": [{"name": "trainer", "state": {"terminated": terminated}}]}


def runs(start: float, ready: float) -> JsonObject:
    """The status of a pod that runs and is ready."""
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(ready)}],
        "containerStatuses": [{"name": "trainer", "state": {"running": {"startedAt": at(start)}}}],
    }


def event(seconds: float, reason: str, note: str, *, about: str = "digits") -> Event:
    """An event of the operator's or the kubelet's."""
    kind = "Normal" if reason in ("PodsCreated", "Started", "MembersChanged", "TrainingSucceeded") else "Warning"
    return Event(type=kind, reason=reason, note=note, about=about, count=1, last=moment(seconds))


def progress_log(*, steps: range, begin: float, start_loss: float = 2.3) -> str:
    """What a leader writes that logs JSON."""
    lines = [
        f"{at(begin + 5 * number)} {json.dumps({'message': f'step {step}/400', 'progress': moment})}\n"
        for number, (step, moment) in enumerate(_progress(steps, start_loss))
    ]
    return "".join(lines)


def metrics_file(*, steps: range, begin: float) -> str:
    """What a leader measures, in its file."""
    moments = enumerate(_progress(steps, 2.3))
    return "".join(json.dumps({"time": at(begin + number), **moment}) + "\n" for number, (_, moment) in moments)


def _progress(steps: range, start_loss: float) -> Iterator[tuple[int, JsonObject]]:
    for number, step in enumerate(steps):
        metrics: JsonObject = {"loss": f"{start_loss / (1 + number):.4g}", "accuracy": f"{number / 1000:.4g}"}
        yield step, {"step": step, "metrics": metrics, "examplesPerSecond": 2500.0 + 100 * number}


def job(status: JsonObject, **spec: object) -> JsonObject:
    """The job digits as it is stored."""
    body = stored(manifest("digits", **spec))  # type: ignore[arg-type]
    return {**body, "status": status}


def true(kind: Condition, message: str = "") -> JsonObject:
    """A condition that holds."""
    return {"type": str(kind), "status": "True", "message": message, "lastTransitionTime": at(0)}


def a_job_that_succeeded() -> Evidence:
    """Two workers, one attempt."""
    status: JsonObject = {
        "state": "Succeeded",
        "attempt": 1,
        "startTime": at(0),
        "completionTime": at(120),
        "conditions": [true(Condition.COMPLETE)],
        "progress": {"step": 400, "totalSteps": 400, "percent": 100, "metrics": {"loss": "0.1"}},
    }
    log = Log("worker-0", progress_log(steps=range(20, 401, 20), begin=15), stamped=True)
    return Evidence(
        source="namespace default of https://cluster.example",
        taken_at=moment(130),
        job=job(status),
        objects={"pods": (pod("worker-0", ran(4, 118, 0)), pod("worker-1", ran(6, 119, 0)))},
        events=(event(0, "PodsCreated", "created 2 pods"), event(120, "TrainingSucceeded", "worker 0 has completed")),
        logs=(log,),
        scalars=scalars_of((log,)),
    )


def a_job_that_failed() -> Evidence:
    """Two attempts: a pod is gone but for its events; then a worker failed with hostile last words."""
    tail = f"reading part-7 with {SECRET}\n{HOSTILE}\nValueError: bad record"
    status: JsonObject = {
        "state": "Failed",
        "attempt": 2,
        "startTime": at(0),
        "lastRestartTime": at(70),
        "completionTime": at(160),
        "conditions": [true(Condition.FAILED, "worker 1 failed with exit code 1; backoffLimit 0 is used up")],
        "restarts": {"disruption": 1, "total": 1},
        "rootCause": {
            "class": "UserError",
            "role": "worker",
            "index": 1,
            "pod": "digits-worker-1-r1",
            "node": "node-b",
            "exitCode": 1,
            "reason": "Error",
            "message": "ValueError: bad record",
            "logTail": tail,
            "hint": "a record cannot be read: look at the file that is named",
        },
    }
    first = progress_log(steps=range(20, 201, 20), begin=10)
    second = progress_log(steps=range(120, 301, 20), begin=85, start_loss=1.1)
    logs = (
        Log("worker-0", first, stamped=True),
        Log("worker-0-r1", second, stamped=True),
        Log("worker-1-r1", "\n".join(f"{at(158)} {line}" for line in tail.splitlines()), stamped=True),
    )
    return Evidence(
        source="namespace default of https://cluster.example",
        taken_at=moment(170),
        job=job(status, runPolicy={"backoffLimit": 0}),
        objects={
            "pods": (
                pod("worker-0-r1", ran(75, 160, 143), attempt=2, created=71),
                pod("worker-1-r1", ran(76, 158, 1, "Error"), attempt=2, created=71),
            )
        },
        events=(
            event(0, "PodsCreated", "created 2 pods"),
            event(3, "Started", "Started container trainer", about="digits-worker-0"),
            event(68, "TaintManagerEviction", "Marking for deletion", about="digits-worker-0"),
            event(70, "NewAttempt", "attempt 2: worker 0 was lost; all replicas start again from the last checkpoint"),
            event(160, "FatalExitCode", HOSTILE),
        ),
        logs=logs,
        scalars=scalars_of(logs),
        unread=(Unread("nodes", 'nodes is forbidden: User "ann" cannot list resource "nodes" at the cluster scope'),),
    )


def a_job_whose_members_changed() -> Evidence:
    """A third worker joins two, and worker 0 is lost; its next pod waits to join, and worker 1 leads."""
    status: JsonObject = {
        "state": "Running",
        "ready": "3/3",
        "attempt": 1,
        "startTime": at(0),
        "restarts": {"disruption": 1, "total": 1},
        "replicaStatuses": {"worker": {"desired": 3, "restarts": {"0": 1}}},
        "world": {"generation": 2, "members": {"worker": "1-2"}},
        "progress": {"step": 300, "totalSteps": 400, "percent": 75, "world": 2},
    }
    first = Log("worker-0", progress_log(steps=range(20, 181, 20), begin=12), stamped=True)
    second = Log("worker-1", progress_log(steps=range(160, 301, 20), begin=100, start_loss=1.1), stamped=True)
    return Evidence(
        source="namespace default of https://cluster.example",
        taken_at=moment(140),
        job=job(status, roles={"worker": 3}, elastic={"maxReplicas": 4}),
        objects={
            "pods": (
                pod("worker-0-r1", runs(70, 80), created=62),
                pod("worker-1", runs(4, 10)),
                pod("worker-2", runs(25, 33), created=22),
            )
        },
        events=(
            event(3, "Started", "Started container trainer", about="digits-worker-0"),
            event(40, "MembersChanged", "worker-2 joins; 3 of 3 replicas train (generation 1)"),
            event(60, "Killing", "Stopping container trainer", about="digits-worker-0"),
            event(90, "MembersChanged", "worker-0 leaves; 2 of 3 replicas train (generation 2)"),
        ),
        logs=(first, second),
        scalars=scalars_of((first, second)),
    )


def moment(seconds: float) -> datetime:
    """So long after the job's creation."""
    return NOW + timedelta(seconds=seconds)
