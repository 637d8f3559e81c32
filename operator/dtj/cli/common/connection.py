"""What all commands that ask a cluster have in common: where it is, which namespace, and how its errors are told."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec

import click

from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.terminal import say
from dtj.client import (
    ApiError,
    AsyncClient,
    ClientError,
    ConfigError,
    InvalidManifest,
    JobGone,
    NeverComes,
    NotFound,
    Unavailable,
    WaitTimeout,
)

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster and namespace a person means; None is what kubectl would take too."""

    namespace: str | None
    context: str | None
    kubeconfig: str | None

    async def connect(self) -> AsyncClient:
        """A client for it. Raises ConfigError."""
        return await AsyncClient.connect(namespace=self.namespace, context=self.context, kubeconfig=self.kubeconfig)


def place_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command kubectl's options for the cluster, and what they mean together as its argument ``place``."""

    @click.option("-n", "--namespace", metavar="NAME", help="The namespace; else that of the kubeconfig's context.")
    @click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
    @click.option("--kubeconfig", metavar="FILE", help="The kubeconfig; else $KUBECONFIG or ~/.kube/config.")
    @functools.wraps(command)
    def placed(*args: Any, namespace: str | None, context: str | None, kubeconfig: str | None, **kwargs: Any) -> int:
        return command(*args, place=Place(namespace, context, kubeconfig), **kwargs)

    return placed


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
    """The exit code of work with a client for that place; what goes wrong is told in one line."""

    async def connected() -> int:
        async with await place.connect() as client:
            return await work(client)

    try:
        return asyncio.run(connected())
    except ConfigError as error:
        say(str(error), err=True)
        return Exit.USAGE
    except ClientError as error:
        for line in error.problems if isinstance(error, InvalidManifest) else (str(error),):
            say(line, err=True)
        return _exit_code(error)
    except ApiError as error:
        say(told(error), err=True)
        return Exit.API
    except KeyboardInterrupt:
        return Exit.SIGNAL + signal.SIGINT


def told(error: ApiError) -> str:
    """The server's own sentence, with what to do where that is not in it."""
    if isinstance(error, Unavailable):
        return f"the cluster does not answer: {error.message}"
    if error.status == HTTPStatus.UNAUTHORIZED:
        return f"the cluster does not know you: {error.message}; log in again"
    if isinstance(error, NotFound) and not error.reason:
        return f"{error.message}: is the CRD installed? (kubectl get crd; helm install dtj charts/dtj)"
    return error.message


def _exit_code(error: ClientError) -> int:
    match error:
        case WaitTimeout():
            return Exit.TIMEOUT
        case NeverComes() | JobGone():
            return Exit.FAILED
        case _:
            return Exit.USAGE
