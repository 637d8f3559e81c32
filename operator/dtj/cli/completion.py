"""``dtj completion``, and ``kubectl_complete-dtj``, which kubectl runs to complete ``kubectl dtj``."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click
from click.shell_completion import ShellComplete, get_completion_class

from dtj.cli import PROGRAM, VARIABLE
from dtj.cli.common.terminal import Exit, say_lines, write

_NO_FILES, _FILES = ":4", ":0"
"""Cobra's directives, which kubectl reads: the candidates are all there is, or files may follow."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print a script by which a shell completes commands and jobs.

    \b
    bash, in ~/.bashrc:
      source <(dtj completion bash)
    zsh, in ~/.zshrc after compinit:
      source <(dtj completion zsh)
    fish:
      dtj completion fish > ~/.config/fish/completions/dtj.fish

    For `kubectl dtj`, kubectl finds `kubectl_complete-dtj` on the PATH by itself.

    Exit codes: 0 done, 2 bad input.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    write(kind(root, {}, PROGRAM, VARIABLE).source())
    return Exit.OK


def kubectl_lines(cli: click.Command, words: list[str]) -> Iterable[str]:
    """What ``kubectl_complete-dtj`` answers to kubectl: candidates, and a directive at the end.

    ``words`` are those after ``kubectl dtj``; the last one, which may be empty, is the one to complete.
    """
    *before, incomplete = words or [""]
    found = ShellComplete(cli, {}, PROGRAM, VARIABLE).get_completions(before, incomplete)
    plain = [item for item in found if item.type == "plain"]
    yield from (f"{item.value}\t{item.help}" if item.help else str(item.value) for item in plain)
    yield _NO_FILES if len(plain) == len(found) else _FILES


def answer_kubectl() -> None:
    """The entry point ``kubectl_complete-dtj``."""
    from dtj.cli.main import cli

    for line in kubectl_lines(cli, sys.argv[1:]):
        say_lines(line)
