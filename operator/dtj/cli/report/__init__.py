"""``dtj report``: what is known of a job on one page, without secrets.

Each source (:mod:`~dtj.cli.report.cluster`, :mod:`~dtj.cli.report.run`) gives the same
:class:`~dtj.cli.report.evidence.Evidence`; all that is made of it is pure.
"""

from __future__ import annotations

from pathlib import Path

import click

from dtj.cli.common.connection import with_client
from dtj.cli.common.options import JobName, Place, check_one_is_given, complete_run, place_options, runs_option


def _one_run(context: click.Context, option: click.Parameter, runs: tuple[str, ...]) -> str | None:
    if len(runs) > 1:
        raise click.UsageError("--run: a report is about one run; tensorboard --logdir=dtj-runs compares the curves")
    return next(iter(runs), None)


@click.command()
@click.argument("name", type=JobName(tfjobs=True), required=False)
@runs_option("With --run: the folder that holds the runs.")
@click.option(
    "--run",
    multiple=True,
    callback=_one_run,
    metavar="RUN",
    shell_complete=complete_run,
    help="Show a run on this machine instead: its folder, or the name of its job.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="The file to write; - is stdout. Default: dtj-report-NAME.html in the current directory.",
)
@click.option("--logs", is_flag=True, help="Include the logs of a job on a cluster; those of a run are always there.")
@place_options
def report(
    name: str | None,
    run: str | None,
    runs: Path,
    output: Path | None,
    logs: bool,
    place: Place,
) -> int:
    """Gather what is known of a job on one page.

    It shows a timeline of pods and restarts, curves, events and the cause of a failure. Values of environment
    variables, arguments and annotations are left out, and so is what looks like a secret.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer.
    """
    from dtj.cli.report.output import report_job, report_run

    check_one_is_given(name, run, place)
    if run is not None:
        return report_run(run, runs, output=output)
    assert name is not None
    return with_client(place, lambda client: report_job(client, name, logs=logs, output=output))
