"""Commands that a person may type next, for the same cluster and namespace as the one that runs."""

from __future__ import annotations

import shlex
from typing import Final

import click

_PLACE: Final = (("namespace", "-n"), ("context", "--context"), ("kubeconfig", "--kubeconfig"))


def next_command(*words: str) -> str:
    """``dtj WORDS``, with the options for the cluster that were given."""
    context = click.get_current_context()
    return shlex.join((*(context.find_root().info_name or "dtj").split(), *words, *_place(context)))


def next_kubectl(*words: str) -> str:
    """``kubectl WORDS``, with the options for the cluster that were given."""
    return shlex.join(("kubectl", *words, *_place(click.get_current_context())))


def _place(context: click.Context) -> tuple[str, ...]:
    given = ((option, context.params.get(name)) for name, option in _PLACE)
    return tuple(word for option, value in given if value for word in (option, str(value)))
