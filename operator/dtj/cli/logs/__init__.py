"""``dtj logs``: what the replicas of a job print, as one stream."""

from __future__ import annotations

import click

from dtj.cli.common.connection import with_client
from dtj.cli.common.options import Duration, JobName, Place, WholeNumber, place_options


@click.command()
@click.argument("name", type=JobName(tfjobs=True))
@click.option("--role", metavar="ROLE", help="Show only replicas of this role: chief, worker, ps, …")
@click.option("--index", type=WholeNumber(min=0), metavar="N", help="Show only the replica with this index.")
@click.option("-c", "--container", metavar="NAME", help="Show this container. Default: the one that trains.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines, across restarts, until the job ends.")
@click.option("-p", "--previous", is_flag=True, help="Show the previous pod of each replica, if it still exists.")
@click.option("--tail", type=WholeNumber(min=0), metavar="N", help="Show only the last N lines of each pod.")
@click.option("--since", type=Duration(), metavar="DURATION", help="Show only lines newer than 30s, 5m, 1h30m, …")
@click.option("--timestamps", is_flag=True, help="Start each line with the time at which it was written.")
@click.option(
    "--first-error", "only_error", is_flag=True, help="Show the first error of the replica that failed first."
)
@place_options
def logs(
    name: str,
    role: str | None,
    index: int | None,
    container: str | None,
    follow: bool,
    previous: bool,
    tail: int | None,
    since: float | None,
    timestamps: bool,
    only_error: bool,
    place: Place,
) -> int:
    """Print the logs of a job's replicas, merged by time.

    Each line starts with the replica's name; with --role and --index there is no prefix. Ctrl-C ends the command, not
    the job.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer, 130 after Ctrl-C.
    """
    from dtj.cli.logs.show import show_job
    from dtj.client.logs import LogSelection

    if follow and (previous or only_error):
        raise click.UsageError(f"--follow and {'--previous' if previous else '--first-error'} exclude each other")
    if only_error and (previous or role is not None or index is not None):
        raise click.UsageError("--first-error chooses the replica itself: leave --role, --index and --previous out")
    selection = LogSelection(role=role, index=index, container=container, previous=previous, tail=tail, since=since)
    return with_client(
        place,
        lambda client: show_job(client, name, selection, follow=follow, only_error=only_error, timestamps=timestamps),
    )
