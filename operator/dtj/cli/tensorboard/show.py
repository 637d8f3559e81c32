"""Brings the TensorBoard of a job, or of a run on this machine, to a port of this machine, and opens a browser."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from dtj.api import names, rules
from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition
from dtj.cli.common.connection import next_kubectl
from dtj.cli.common.formatting import short_time
from dtj.cli.common.terminal import Exit, say, signals_that_end
from dtj.client import AsyncClient
from dtj.core.policies.tensorboard import tensorboard_name
from dtj.kube.errors import NotFound
from dtj.kube.gateway import PODS
from dtj.kube.port_forward import PortTaken, Target, forwarded
from dtj.local import curves

_LOOK_SECONDS: Final = 1.0


class _Unavailable(Exception):
    """There is no TensorBoard to show; the message gives the reason and the remedy."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


async def show_job(client: AsyncClient, name: str, *, port: int, browser: bool, timeout: float) -> int:
    """Show the curves of a job until Ctrl-C. Returns the exit code if that cannot be done. Raises ApiError."""
    try:
        await _await_pod(client, name, timeout=timeout)
        target = Target(client.namespace, tensorboard_name(name), names.TENSORBOARD_PORT)
        shown: set[str] = set()
        complain = partial(_say_once, shown)
        async with forwarded(client.gateway, target, port=port, complain=complain) as local_port:
            _show(name, local_port, browser=browser)
            await asyncio.Event().wait()  # until Ctrl-C
    except PortTaken as error:
        say(f"{error}: choose another port with --port, or 0 for any", err=True)
        return Exit.USAGE
    except _Unavailable as error:
        say(str(error), err=True)
        return error.code
    raise AssertionError("nothing ends waiting for Ctrl-C but Ctrl-C")


def show_runs(named: Sequence[str], runs: Path, *, port: int, browser: bool, timeout: float) -> int:
    """Show the curves of runs on this machine until Ctrl-C. Returns the exit code."""
    try:
        logs = curves.log_option([curves.find_logs(run, runs) for run in named])
        program = curves.find_tensorboard(os.environ)
        with _signals_raised(), curves.served(program, logs, port=port, timeout=timeout) as server:
            _show(", ".join(named), server.port, browser=browser)
            code = server.wait()
    except _Signalled as error:
        return Exit.SIGNAL + error.number
    except curves.NoCurves as error:
        say(str(error), err=True)
        return Exit.USAGE
    except curves.NotServing as error:
        say(str(error), err=True)
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.SIGNAL + 2
    say(f"TensorBoard ended with code {code}", err=True)
    return Exit.FAILED


class _Signalled(BaseException):
    """A signal asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP raise _Signalled: by default they end Python at once, and what it started
    continues."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise _Signalled(number)

    before = {number: signal.signal(number, handler) for number in signals_that_end() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _show(subject: str, port: int, *, browser: bool) -> None:
    url = f"http://127.0.0.1:{port}/"
    say(f"TensorBoard of {subject}: {url}  (Ctrl-C ends)")
    if browser:
        webbrowser.open(url)


def _say_once(shown: set[str], problem: str) -> None:
    """A browser repeats its requests; a person needs to read of a problem once."""
    if problem not in shown:
        shown.add(problem)
        say(problem, err=True)


async def _await_pod(client: AsyncClient, name: str, *, timeout: float) -> None:
    """Return when TensorBoard is ready. Raises _Unavailable if it cannot become ready, or not in time."""
    why = ""
    try:
        async with asyncio.timeout(timeout):
            while True:
                job = await client.get(name)
                problem = problem_of(job, now=datetime.now(UTC))
                if problem is not None:
                    raise _Unavailable(problem, Exit.USAGE)
                pod = await _pod(client, job)
                trouble = trouble_of(pod) if pod is not None else None
                if trouble is not None:
                    raise _Unavailable(f"TensorBoard of {name} cannot start: {trouble}", Exit.FAILED)
                if pod is not None and is_ready(pod):
                    return
                now = reason_to_wait(job, pod)
                if now != why:
                    why = now
                    say(f"{now}; waiting", err=True)
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        message = f"TensorBoard of {name} was not ready within {timeout:g} s: {why or 'the cluster did not answer'}"
        raise _Unavailable(message, Exit.TIMEOUT) from None


async def _pod(client: AsyncClient, job: Job) -> JsonObject | None:
    """TensorBoard's pod, or None. Raises _Unavailable if the pod of its name belongs to something else."""
    name = tensorboard_name(job.name)
    try:
        pod = await client.gateway.get(PODS, namespace=client.namespace, name=name)
    except NotFound:
        return None
    if dig(pod, "metadata", "ownerReferences", 0, "uid") != job.uid:
        message = f"pod {name} exists and belongs to something else: delete it, or give the job another name"
        raise _Unavailable(message, Exit.USAGE)
    return pod


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
