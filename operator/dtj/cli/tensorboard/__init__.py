"""``dtj tensorboard``: the curves of a job on a cluster, in a browser."""

from __future__ import annotations

import sys

import click

from dtj.api import names
from dtj.cli.common.connection import with_client
from dtj.cli.common.options import Duration, JobName, Place, WholeNumber, place_options


@click.command("tensorboard")
@click.argument("name", type=JobName())
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
def tensorboard(name: str, port: int, browser: bool | None, timeout: float, place: Place) -> int:
    """Show a job's curves in a browser, until Ctrl-C.

    The job needs spec.tensorBoard. Of a run on this machine, tensorboard --logdir=DIR shows the folder.

    Exit codes: 130 ended by Ctrl-C, 143 by SIGTERM, 2 bad input, 3 the timeout expired, 4 the cluster refused or did
    not answer.
    """
    from dtj.cli.tensorboard.show import show_job

    browses = sys.stdout.isatty() if browser is None else browser
    return with_client(place, lambda c: show_job(c, name, port=port, browser=browses, timeout=timeout))
