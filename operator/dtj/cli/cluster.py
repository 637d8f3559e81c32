"""What all commands that ask a cluster have in common: where it is, which namespace, and how its errors are told."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

import click

from dtj.cli.exit_codes import Exit
from dtj.client import ApiError, AsyncClient, ConfigError
from dtj.kube.errors import NotFound, Unavailable

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


def cluster_command(
    function: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, int]],
) -> Callable[P, int]:
    """Give a command kubectl's options for the cluster, and the client that they mean as its first argument.

    What the cluster refuses becomes one line and exit code 4; Ctrl-C ends the command with 130.
    """

    @cluster_options
    @functools.wraps(function)
    def command(place: Place, *args: Any, **kwargs: Any) -> int:
        return ask(place, lambda client: function(client, *args, **kwargs))

    return command  # type: ignore[return-value]


def cluster_options(function: Callable[Concatenate[Place, P], int]) -> Callable[P, int]:
    """Give a command kubectl's options for the cluster, and the place that they mean as its first argument."""

    @click.option("-n", "--namespace", metavar="NAME", help="The namespace; else that of the kubeconfig's context.")
    @click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
    @click.option("--kubeconfig", metavar="FILE", help="The kubeconfig; else $KUBECONFIG or ~/.kube/config.")
    @functools.wraps(function)
    def command(*args: Any, namespace: str | None, context: str | None, kubeconfig: str | None, **kwargs: Any) -> int:
        return function(Place(namespace, context, kubeconfig), *args, **kwargs)

    return command  # type: ignore[return-value]


def ask(place: Place, call: Callable[[AsyncClient], Coroutine[Any, Any, int]]) -> int:
    """The exit code of ``call``, with a client for the place; what goes wrong there becomes one line and a code."""

    async def connected() -> int:
        async with await place.connect() as client:
            return await call(client)

    try:
        return asyncio.run(connected())
    except ConfigError as error:
        click.echo(str(error), err=True)
        return Exit.USAGE
    except ApiError as error:
        click.echo(_told(error), err=True)
        return Exit.API
    except KeyboardInterrupt:
        return Exit.SIGNAL + signal.SIGINT


def _told(error: ApiError) -> str:
    """The server's own sentence, with what to do where that is not in it."""
    if isinstance(error, Unavailable):
        return f"the cluster does not answer: {error.message}"
    if isinstance(error, NotFound) and not error.reason:
        return f"{error.message}: is the CRD installed? (kubectl get crd; helm install dtj charts/dtj)"
    return error.message
