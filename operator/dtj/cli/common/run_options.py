"""The options by which commands name runs on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from dtj.cli.common.connection import Place

F = TypeVar("F", bound=Callable[..., Any])

RUNS: Final = Path("dtj-runs")
"""Where runs are kept by default."""


def runs_option(words: str) -> Callable[[F], F]:
    """Give a command ``--output-dir DIR``, as ``runs``, with ``words`` as its help."""
    return click.option(
        "--output-dir",
        "runs",
        type=click.Path(path_type=Path),
        default=RUNS,
        show_default=True,
        metavar="DIR",
        help=words,
    )


def job_or_run(command: F) -> F:
    """Give a command ``--run RUN``, for a run on this machine in place of a job, and where such are kept."""
    kept = runs_option("With --run: the folder that holds the runs.")(command)
    words = "Show a run on this machine instead: its folder, or the name of its job."
    return click.option("--run", metavar="RUN", help=words, shell_complete=complete_run)(kept)


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The jobs that have a run here; a shell also completes folders."""
    from dtj.local.run_directory import jobs_with_runs

    names = [name for name in jobs_with_runs(context.params.get("runs") or RUNS) if name.startswith(incomplete)]
    return [*map(CompletionItem, names), *([] if names else [CompletionItem(incomplete, type="dir")])]


def _examples() -> str:
    """The jobs with runs in the folder where runs are by default, as an addition to a message; empty without any."""
    from dtj.local.run_directory import jobs_with_runs

    return "".join(f", such as --run {name}" for name in jobs_with_runs(RUNS)[:1])


def check_one_is_given(name: str | None, run: str | None, place: Place) -> None:
    """Raises UsageError where both a job and a run are given, or neither, or a run and where a cluster is."""
    if (name is None) == (run is None):
        raise click.UsageError(
            f"give the name of a job on the cluster, or a run on this machine with --run{_examples()}"
        )
    if run is not None and place != Place(None, None, None):
        raise click.UsageError("--run means a run on this machine: leave out --namespace, --context and --kubeconfig")
