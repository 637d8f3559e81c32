"""What a job and its TensorBoard's pod say of it, in words. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from dtj.api import rules
from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition
from dtj.cli.common.connection import next_kubectl
from dtj.cli.common.formatting import short_time


def problem_of(job: Job, *, now: datetime) -> str | None:
    """Why there will be no TensorBoard unless somebody changes the job; None where there will be one."""
    wanted = job.spec.tensor_board if job.spec is not None else None
    if wanted is None:
        return _how_to_enable(job)
    ended = parse_time(job.status.completion_time)
    if job.status.terminal and job.status.ready_time is None:
        return f"{job.name} has no curves: it ended before all its pods were ready"
    if job.status.terminal and ended is not None and (now - ended).total_seconds() >= wanted.ttl_seconds:
        since = short_time((now - ended).total_seconds())
        patch = _patch(job, {"ttlSeconds": 2 * int((now - ended).total_seconds()) + 3600})
        return (
            f"{job.name} ended {since} ago, and spec.tensorBoard.ttlSeconds is {wanted.ttl_seconds}: to start "
            f"it again, raise that: {patch}"
        )
    if job.spec is not None and job.spec.run_policy.suspend:
        return f"{job.name} is suspended: TensorBoard starts again when the job resumes (runPolicy.suspend: false)"
    return None


def _how_to_enable(job: Job) -> str:
    refused = rules.check(name=job.name, spec={**job.raw_spec, "tensorBoard": {}})
    about = next((violation for violation in refused if violation.field == "spec.tensorBoard"), None)
    if about is not None:
        return f"{job.name} has no TensorBoard (spec.tensorBoard), and can have none: {about.message}"
    return f"{job.name} has no TensorBoard: set spec.tensorBoard: {_patch(job, {})}"


def _patch(job: Job, fields: JsonObject) -> str:
    patch = json.dumps({"spec": {"tensorBoard": fields}}, separators=(",", ":"))
    return next_kubectl("patch", f"dtj/{job.name}", "--type=merge", "-p", patch)


_PERMANENT_REASONS: Final = {
    "CrashLoopBackOff": "it ends again and again",
    "RunContainerError": "its image probably has no command tensorboard",
    "CreateContainerError": "its container cannot be created",
    "CreateContainerConfigError": "its container cannot be created",
    "InvalidImageName": "its image has an invalid name",
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
}


def trouble_of(pod: JsonObject) -> str | None:
    """Why TensorBoard's pod does not start, where waiting is of no use."""
    for status in objects(dig(pod, "status", "containerStatuses")):
        reason = text(dig(status, "state", "waiting", "reason"))
        last = text(dig(status, "lastState", "terminated", "message"))
        words = last or text(dig(status, "state", "waiting", "message"))
        if reason in _PERMANENT_REASONS:
            message = " ".join(words.split())
            detail = f": {message}" if message else ""
            pod_name = text(dig(pod, "metadata", "name"))
            return (
                f"{_PERMANENT_REASONS[reason]} ({reason}){detail}; set spec.tensorBoard.image to an image that has "
                f"tensorboard, or look at {next_kubectl('logs', pod_name)}"
            )
    return None


def is_ready(pod: JsonObject) -> bool:
    """Whether it can be shown."""
    going = dig(pod, "metadata", "deletionTimestamp") is not None
    conditions = objects(dig(pod, "status", "conditions"))
    return not going and any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def reason_to_wait(job: Job, pod: JsonObject | None) -> str:
    """What TensorBoard waits for."""
    if pod is None:
        invalid = job.status.condition(Condition.INVALID)
        if invalid is not None and invalid.status == "True":
            return f"{job.name} cannot run: {invalid.message}"
        if job.status.state in ("Running", "Succeeded", "Failed"):
            return f"{job.name} is {job.status.state}: its TensorBoard is about to be created"
        return f"{job.name} is {job.status.state or 'new'}: its TensorBoard starts when all its pods run"
    for condition in objects(dig(pod, "status", "conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"TensorBoard finds no node: {text(condition.get('message'))}"
    return "TensorBoard is starting"
