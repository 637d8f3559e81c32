"""Brings the TensorBoard of a job to a port of this machine, and opens a browser."""

from __future__ import annotations

import asyncio
import webbrowser
from datetime import UTC, datetime
from functools import cache, partial
from typing import Final

from dtj.api import names
from dtj.api.job import Job, parse_time
from dtj.cli.common.connection import next_command
from dtj.cli.common.formatting import short_time
from dtj.cli.common.terminal import Exit, say
from dtj.client import AsyncClient
from dtj.core.observed import Pod
from dtj.core.policies.tensorboard import tensorboard_name
from dtj.kube.errors import NotFound
from dtj.kube.gateway import PODS
from dtj.kube.observed import pod_from
from dtj.kube.port_forward import PortTaken, Target, forwarded
from dtj.kube.records import pod_from_object

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
        # A browser repeats its requests; a person needs to read of a problem once.
        complain = cache(partial(say, err=True))
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


def _show(subject: str, port: int, *, browser: bool) -> None:
    url = f"http://127.0.0.1:{port}/"
    say(f"TensorBoard of {subject}: {url}  (Ctrl-C ends)")
    if browser:
        webbrowser.open(url)


async def _await_pod(client: AsyncClient, name: str, *, timeout: float) -> None:
    """Return when TensorBoard is ready. Raises _Unavailable if there will be none, or not in time."""
    why = ""
    try:
        async with asyncio.timeout(timeout):
            while True:
                job = await client.get(name)
                problem = problem_of(job, now=datetime.now(UTC))
                if problem is not None:
                    raise _Unavailable(problem, Exit.USAGE)
                pod = await _pod(client, job)
                if pod is not None and pod.ready and not pod.terminating:
                    return
                now = reason_to_wait(pod)
                if now != why:
                    why = now
                    say(f"TensorBoard of {name} is not ready: {now}; waiting", err=True)
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        message = f"TensorBoard of {name} was not ready within {timeout:g} s: {why or 'the cluster did not answer'}"
        raise _Unavailable(message, Exit.TIMEOUT) from None


async def _pod(client: AsyncClient, job: Job) -> Pod | None:
    """TensorBoard's pod, or None. Raises _Unavailable if the pod of its name belongs to something else."""
    name = tensorboard_name(job.name)
    try:
        record = pod_from_object(await client.gateway.get(PODS, namespace=client.namespace, name=name))
    except NotFound:
        return None
    if not job.owns(record.metadata):
        message = f"pod {name} exists and belongs to something else: delete it, or give the job another name"
        raise _Unavailable(message, Exit.USAGE)
    return pod_from(record)


def problem_of(job: Job, *, now: datetime) -> str | None:
    """Why there will be no TensorBoard unless somebody changes the job; None where there will be one."""
    wanted = job.spec.tensor_board if job.spec is not None else None
    if wanted is None:
        patch = ("kubectl", "patch", f"dtj/{job.name}", "--type=merge", "-p", '{"spec":{"tensorBoard":{}}}')
        return f"{job.name} has no TensorBoard: set spec.tensorBoard: {next_command(patch)}"
    if job.status.terminal and job.status.ready_time is None:
        return f"{job.name} has no curves: it ended before all its pods were ready"
    ended = parse_time(job.status.completion_time)
    if job.status.terminal and ended is not None and (now - ended).total_seconds() >= wanted.ttl_seconds:
        since = short_time((now - ended).total_seconds())
        return (
            f"{job.name} ended {since} ago: to see it again, raise spec.tensorBoard.ttlSeconds ({wanted.ttl_seconds})"
        )
    return None


def reason_to_wait(pod: Pod | None) -> str:
    """What TensorBoard waits for."""
    if pod is None:
        return "it starts when all pods of the job run"
    if pod.blocker is None:
        return f"its pod starts, see {next_command(('kubectl', 'describe', f'pod/{pod.name}'))}"
    return f"{pod.blocker.reason}: {pod.blocker.message}"
