"""Brings the TensorBoard of a job, or of a run on this machine, to a port of this machine, and opens a browser."""

from __future__ import annotations

import asyncio
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

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig
from dtj.cli.common.exit_codes import Exit, signals_that_end
from dtj.cli.common.terminal import say
from dtj.cli.tensorboard.render import is_ready, problem_of, reason_to_wait, trouble_of
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
