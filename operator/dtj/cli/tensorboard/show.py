"""Brings the TensorBoard of a job, or of a run on this machine, to a port of this machine, and opens a browser."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import webbrowser
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from dtj.api import names, rules
from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.cli.common.connection import next_kubectl
from dtj.cli.common.formatting import short_time
from dtj.cli.common.terminal import Exit, say, signals_that_end
from dtj.client import AsyncClient
from dtj.core.observed import Pod
from dtj.core.policies.tensorboard import tensorboard_name
from dtj.kube.errors import NotFound
from dtj.kube.gateway import PODS
from dtj.kube.observed import pod_from
from dtj.kube.port_forward import PortTaken, Target, forwarded
from dtj.kube.records import PodRecord, pod_from_object
from dtj.local import curves, run_directory
from dtj.local.run_directory import RunError

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
    for number in signals_that_end():
        signal.signal(number, _end)  # by default they end Python at once, and what it started continues
    try:
        logs = curves.log_option([run_directory.find(run, runs).tensorboard for run in named])
        program = curves.find_tensorboard(os.environ)
        with curves.served(program, logs, port=port, timeout=timeout) as server:
            _show(", ".join(named), server.port, browser=browser)
            code = server.wait()
    except RunError as error:
        say(str(error), err=True)
        return Exit.USAGE
    except curves.NotServing as error:
        say(str(error), err=True)
        return Exit.FAILED
    say(f"TensorBoard ended with code {code}", err=True)
    return Exit.FAILED


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(Exit.SIGNAL + number)


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
                record = await _pod(client, job)
                pod = pod_from(record) if record is not None else None
                if pod is not None and pod.ready and not pod.terminating:
                    return
                trouble = trouble_of(record) if record is not None else None
                if trouble is not None:
                    raise _Unavailable(f"TensorBoard of {name} cannot start: {trouble}", Exit.FAILED)
                now = reason_to_wait(job, pod)
                if now != why:
                    why = now
                    say(f"{now}; waiting", err=True)
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        message = f"TensorBoard of {name} was not ready within {timeout:g} s: {why or 'the cluster did not answer'}"
        raise _Unavailable(message, Exit.TIMEOUT) from None


async def _pod(client: AsyncClient, job: Job) -> PodRecord | None:
    """TensorBoard's pod, or None. Raises _Unavailable if the pod of its name belongs to something else."""
    name = tensorboard_name(job.name)
    try:
        record = pod_from_object(await client.gateway.get(PODS, namespace=client.namespace, name=name))
    except NotFound:
        return None
    if not job.owns(record.metadata):
        message = f"pod {name} exists and belongs to something else: delete it, or give the job another name"
        raise _Unavailable(message, Exit.USAGE)
    return record


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


def trouble_of(record: PodRecord) -> str | None:
    """Why TensorBoard's pod does not start, where waiting is of no use."""
    blocker = pod_from(record).blocker
    if blocker is not None and blocker.reason != Reason.UNSCHEDULABLE:
        words = f"{blocker.reason}: {blocker.message}"
    elif any(waiting.reason == "CrashLoopBackOff" for _, waiting in record.waiting):
        words = "it ends again and again"
    else:
        return None
    look = next_kubectl("logs", record.metadata.name)
    return f"{words}; set spec.tensorBoard.image to an image that has tensorboard, or look at {look}"


def reason_to_wait(job: Job, pod: Pod | None) -> str:
    """What TensorBoard waits for."""
    if pod is None:
        if (invalid := job.status.when_true(Condition.INVALID)) is not None:
            return f"{job.name} cannot run: {invalid.message}"
        if job.status.state in ("Running", "Succeeded", "Failed"):
            return f"{job.name} is {job.status.state}: its TensorBoard is about to be created"
        return f"{job.name} is {job.status.state or 'new'}: its TensorBoard starts when all its pods run"
    return f"TensorBoard finds no node: {pod.blocker.message}" if pod.blocker is not None else "TensorBoard is starting"
