"""``dtj report``: writes what is known of a job into one file, to read or to send to others."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from dtj.cli.common.connection import Place, place_options, with_client
from dtj.cli.common.job_name import JobName
from dtj.cli.common.run_options import check_one_is_given, complete_run, runs_option

MAX_RUNS: Final = 8
"""The number of colours on the page: more look alike."""


@click.command()
@click.argument("name", type=JobName(), required=False)
@runs_option("With --run: the folder that holds the runs.")
@click.option(
    "--run",
    "run",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_run,
    help="Show a run on this machine instead: its folder, or the name of its job. Several times: compare the runs.",
)
@click.option("--html", is_flag=True, help="Write one page that opens in any browser, instead of a bundle of files.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="The file to write; - is stdout. Default: dtj-report-NAME.tar.gz, or .html, in the current directory.",
)
@click.option(
    "--include-env",
    is_flag=True,
    help="Show the values of environment variables and arguments, except those that look like secrets.",
)
@place_options
def report(
    name: str | None,
    run: tuple[str, ...],
    runs: Path,
    html: bool,
    output: Path | None,
    include_env: bool,
    place: Place,
) -> int:
    """Gather what is known of a job, as files or a page.

    With several --run, the page compares the runs: their curves in the same plots, and what differs.

    Values of environment variables and arguments are left out, and so is everything that looks like a secret. The
    bundle's file INDEX lists what could not be read. The page shows a timeline of attempts and pods, curves, events
    and the cause of a failure; it needs no server and no network.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer.
    """
    from dtj.cli.report.write import report_comparison, report_job, report_run

    check_one_is_given(name, next(iter(run), None), place)
    _check_runs(run)
    if len(run) > 1:
        return report_comparison(run, runs, include_env=include_env, output=output)
    if run:
        return report_run(run[0], runs, include_env=include_env, html=html, output=output)
    assert name is not None
    return with_client(
        place, lambda client: report_job(client, name, include_env=include_env, html=html, output=output)
    )


def _check_runs(run: tuple[str, ...]) -> None:
    """Raises UsageError for runs that cannot be compared."""
    twice = next((each for each in run if run.count(each) > 1), None)
    if twice is not None:
        raise click.UsageError(f"--run {twice}: is given twice; name another run to compare it with")
    if len(run) > MAX_RUNS:
        raise click.UsageError(f"--run: a page compares at most {MAX_RUNS} runs, not {len(run)}: leave some out")
