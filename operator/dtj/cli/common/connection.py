"""What all commands that ask a cluster share: its kubeconfig and namespace, and how its errors are shown.

The client is imported when a command connects: ``dtj --help`` and a Tab do without it.
"""

from __future__ import annotations

import functools
import shlex
import signal
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias

import click

from dtj.cli import PROGRAM
from dtj.cli.common.options import Place, place_options, where_runs_are
from dtj.cli.common.terminal import Exit, say

if TYPE_CHECKING:
    from dtj.client import ApiError, AsyncClient, ClientError


P = ParamSpec("P")


def cluster_command(
    function: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, int]],
) -> Callable[P, int]:
    """Give a command kubectl's options for the cluster, and the client that they mean as its first argument.

    What the cluster refuses becomes one line and exit code 4; Ctrl-C ends the command with 130.
    """

    @place_options
    @functools.wraps(function)
    def command(*args: Any, place: Place, **kwargs: Any) -> int:
        return with_client(place, lambda client: function(client, *args, **kwargs))

    return command


def with_client(place: Place, work: Callable[[AsyncClient], Coroutine[Any, Any, int]]) -> int:
    """The exit code of work with a client for that place; what goes wrong is printed in one line."""
    import asyncio

    from dtj.client import ApiError, ClientError, ConfigError

    async def connected() -> int:
        async with await place.connect() as client:
            return await work(client)

    try:
        return asyncio.run(connected())
    except ConfigError as error:
        here = where_runs_are("; for a run on this machine, use dtj report") if place == Place() else ""
        say(f"{error}{here}", err=True)
        return Exit.USAGE
    except ClientError as error:
        return report_error(error)
    except ApiError as error:
        say(format_api_error(error), err=True)
        return Exit.API
    except KeyboardInterrupt:
        return Exit.SIGNAL + signal.SIGINT


def format_api_error(error: ApiError) -> str:
    """The server's own sentence, with what to do if the sentence does not say it."""
    from dtj.client import NotFound, Unavailable

    if isinstance(error, Unavailable):
        return f"the cluster does not answer: {error.message}"
    if error.status == HTTPStatus.UNAUTHORIZED:
        return f"the cluster rejects your credentials: {error.message}; log in again"
    if isinstance(error, NotFound) and not error.reason:
        return f"{error.message}: is the CRD installed? (kubectl get crd; helm install dtj charts/dtj)"
    return error.message


def report_error(error: ClientError) -> int:
    """Print what is wrong, a line each. Returns the exit code."""
    from dtj.client import ConditionUnreachable, InvalidManifest, JobGone, WaitTimeout

    for line in error.problems if isinstance(error, InvalidManifest) else (str(error),):
        say(line, err=True)
    match error:
        case WaitTimeout():
            return Exit.TIMEOUT
        case ConditionUnreachable() | JobGone():
            return Exit.FAILED
        case _:
            return Exit.USAGE


_PLACE: Final = (("namespace", "-n"), ("context", "--context"), ("kubeconfig", "--kubeconfig"))


Typed: TypeAlias = Callable[[Sequence[str]], str]
"""Makes of a command's words the line that a person types for this cluster and namespace."""


def next_command(words: Sequence[str], *, namespace: str = "") -> str:
    """``dtj …`` or ``kubectl …`` with the options for the cluster that were given, and this namespace if none was."""
    program, *arguments = words
    if program == PROGRAM:
        program = click.get_current_context().find_root().info_name or PROGRAM
    return shlex.join((*program.split(), *arguments, *_place(namespace)))


def commands_in(namespace: str, *, usual: str) -> Typed:
    """:func:`next_command` for a job in ``namespace``, which is named where it is not the ``usual`` one of the client:
    a manifest may name another."""
    return partial(next_command, namespace=namespace if namespace != usual else "")


def _place(namespace: str) -> tuple[str, ...]:
    context = click.get_current_context(silent=True)
    params = context.params if context is not None else {}
    given = [(option, params.get(name)) for name, option in _PLACE]
    if namespace and not params.get("namespace"):
        given.insert(0, ("-n", namespace))
    return tuple(word for option, value in given if value for word in (option, str(value)))
