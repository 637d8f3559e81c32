"""``dtj tensorboard``: the curves of a job on a cluster, or of a run on this machine, in a browser."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig
from dtj.cli.common.connection import Place, place_options, with_client
from dtj.cli.common.durations import Duration
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.run_options import check_one_is_given, job_or_run
from dtj.cli.common.terminal import say
from dtj.cli.completion.command import JobName
from dtj.cli.tensorboard.render import is_ready, problem_of, reason_to_wait, trouble_of
from dtj.client import AsyncClient
from dtj.core.tensorboard import tensorboard_name
from dtj.kube.errors import NotFound
from dtj.kube.gateway import PODS
from dtj.kube.port_forward import PortTaken, Target, forwarded
from dtj.local import curves

_LOOK_SECONDS: Final = 1.0


class _Told(Exception):
    """There is no TensorBoard to show; the message says why, and what to do."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


async def _show_job(client: AsyncClient, name: str, *, port: int, browser: bool, timeout: float) -> int:
    try:
        await _await_pod(client, name, timeout=timeout)
        target = Target(client.namespace, tensorboard_name(name), names.TENSORBOARD_PORT)
        said: set[str] = set()
        async with forwarded(client.gateway, target, port=port, complain=lambda words: _once(words, said)) as here:
            _show(name, here, browser=browser)
            await asyncio.Event().wait()  # until Ctrl-C
    except PortTaken as error:
        say(f"{error}: give another one with --port, or 0 for any", err=True)
        return Exit.USAGE
    except _Told as error:
        say(str(error), err=True)
        return error.code
    raise AssertionError("nothing ends waiting for Ctrl-C but Ctrl-C")


@click.command("tensorboard")
@click.argument("name", type=JobName(), required=False)
@job_or_run
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=names.TENSORBOARD_PORT,
    show_default=True,
    help="The port on this machine; 0 for any.",
)
@click.option("--browser/--no-browser", default=None, help="Open a browser; the default on a terminal.")
@click.option(
    "--timeout",
    type=Duration(),
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for TensorBoard to be there.",
)
@place_options
def tensorboard(
    name: str | None, run: str | None, runs: Path, port: int, browser: bool | None, timeout: float, place: Place
) -> int:
    """Show a job's curves in a browser, until Ctrl-C.

    On a cluster the job needs spec.tensorBoard; with --run, the curves are those of a run on this machine.

    Exit codes: 130 ended by Ctrl-C, 1 TensorBoard cannot start, 2 bad input, 3 the time was over, 4 the cluster refused
    or did not answer.
    """
    check_one_is_given(name, run, place)
    browses = sys.stdout.isatty() if browser is None else browser
    if name is not None:
        return with_client(place, lambda c: _show_job(c, name, port=port, browser=browses, timeout=timeout))
    assert run is not None
    return _show_run(run, runs, port=port, browser=browses, timeout=timeout)


def _show_run(run: str, runs: Path, *, port: int, browser: bool, timeout: float) -> int:
    try:
        logs = curves.find_logs(run, runs)
        program = curves.find_tensorboard(os.environ)
        with curves.served(program, logs, port=port, timeout=timeout) as server:
            _show(run, server.port, browser=browser)
            code = server.wait()
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


def _show(subject: str, port: int, *, browser: bool) -> None:
    url = f"http://127.0.0.1:{port}/"
    say(f"TensorBoard of {subject}: {url}  (Ctrl-C ends)")
    if browser:
        webbrowser.open(url)


def _once(words: str, said: set[str]) -> None:
    """A browser asks again and again; a person is told once."""
    if words not in said:
        said.add(words)
        say(words, err=True)


async def _await_pod(client: AsyncClient, name: str, *, timeout: float) -> None:
    """Return when TensorBoard is ready. Raises _Told where that will not come, or not in time."""
    why = ""
    try:
        async with asyncio.timeout(timeout):
            while True:
                job = await client.get(name)
                problem = problem_of(job, now=datetime.now(UTC))
                if problem is not None:
                    raise _Told(problem, Exit.USAGE)
                pod = await _pod(client, job)
                trouble = trouble_of(pod) if pod is not None else None
                if trouble is not None:
                    raise _Told(f"TensorBoard of {name} cannot start: {trouble}", Exit.FAILED)
                if pod is not None and is_ready(pod):
                    return
                now = reason_to_wait(job, pod)
                if now != why:
                    why = now
                    say(f"{now}; waiting", err=True)
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        message = f"TensorBoard of {name} was not there within {timeout:g} s: {why or 'the cluster did not answer'}"
        raise _Told(message, Exit.TIMEOUT) from None


async def _pod(client: AsyncClient, job: Job) -> JsonObject | None:
    """TensorBoard's pod, where it is there. Raises _Told where its name is another's."""
    name = tensorboard_name(job.name)
    try:
        pod = await client.gateway.get(PODS, namespace=client.namespace, name=name)
    except NotFound:
        return None
    if dig(pod, "metadata", "ownerReferences", 0, "uid") != job.uid:
        message = f"pod {name} exists and belongs to something else: delete it, or give the job another name"
        raise _Told(message, Exit.USAGE)
    return pod
