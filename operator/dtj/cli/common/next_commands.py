"""Commands that a person may type next, for the same cluster and namespace as the one that runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import Final

import click

_PLACE: Final = (("namespace", "-n"), ("context", "--context"), ("kubeconfig", "--kubeconfig"))


def next_command(*words: str, namespace: str = "") -> str:
    """``dtj WORDS``, with the options for the cluster that were given, and this namespace if none was."""
    context = click.get_current_context()
    place = _place(context)
    if namespace and not context.params.get("namespace"):
        place = ("-n", namespace, *place)
    return shlex.join((*(context.find_root().info_name or "dtj").split(), *words, *place))


def commands_in(namespace: str, *, usual: str) -> Callable[..., str]:
    """:func:`next_command` for a job in ``namespace``, which is named where it is not the ``usual`` one of the client:
    a manifest may name another."""
    return partial(next_command, namespace=namespace if namespace != usual else "")


def next_kubectl(*words: str) -> str:
    """``kubectl WORDS``, with the options for the cluster that were given."""
    return shlex.join(("kubectl", *words, *_place(click.get_current_context(silent=True))))


def _place(context: click.Context | None) -> tuple[str, ...]:
    params = context.params if context is not None else {}
    given = ((option, params.get(name)) for name, option in _PLACE)
    return tuple(word for option, value in given if value for word in (option, str(value)))
