"""``dtj tensorboard``: the curves of a job on a cluster, or of a run on this machine, in a browser."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dtj.api import names
from dtj.cli.common.connection import with_client
from dtj.cli.common.options import (
    Duration,
    JobName,
    Place,
    WholeNumber,
    check_one_is_given,
    complete_run,
    place_options,
    runs_option,
)


@click.command("tensorboard")
@click.argument("name", type=JobName(), required=False)
@runs_option("With --run: the folder that holds the runs.")
@click.option(
    "--run",
    "named",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_run,
    help="Show a run on this machine instead: its folder, or the name of its job. Several times: compare the runs.",
)
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=names.TENSORBOARD_PORT,
    show_default=True,
    help="The port on this machine; 0 for any free one.",
)
@click.option("--browser/--no-browser", default=None, help="Open a browser. Default: yes on a terminal.")
@click.option(
    "--timeout",
    type=Duration(),
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="How long to wait until TensorBoard is ready.",
)
@place_options
def tensorboard(
    name: str | None,
    named: tuple[str, ...],
    runs: Path,
    port: int,
    browser: bool | None,
    timeout: float,
    place: Place,
) -> int:
    """Show a job's curves in a browser, until Ctrl-C.

    On a cluster the job needs spec.tensorBoard.

    Exit codes: 130 ended by Ctrl-C, 143 by SIGTERM, 1 TensorBoard cannot start, 2 bad input, 3 the timeout expired,
    4 the cluster refused or did not answer.
    """
    from dtj.cli.tensorboard.show import show_job, show_runs

    check_one_is_given(name, next(iter(named), None), place)
    browses = sys.stdout.isatty() if browser is None else browser
    if name is not None:
        return with_client(place, lambda c: show_job(c, name, port=port, browser=browses, timeout=timeout))
    return show_runs(named, runs, port=port, browser=browses, timeout=timeout)
