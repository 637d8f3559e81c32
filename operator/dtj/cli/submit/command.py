"""``dtj submit``: creates jobs on a cluster, after all of them were checked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import cluster_command, format_api_error
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.next_commands import next_command
from dtj.cli.common.objects import named
from dtj.cli.common.terminal import say

if TYPE_CHECKING:
    from dtj.client import ApiError, AsyncClient
    from dtj.client.checks import Manifest


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@cluster_command
async def submit(client: AsyncClient, files: tuple[str, ...]) -> int:
    """Submit jobs to a cluster.

    Creates the jobs of each FILE (- is standard input). All are checked first, as `dtj validate` does, except for
    accelerator profiles, which the cluster checks. If one is invalid, none is created.

    Exit codes: 0 all were created, 2 bad input, 4 the cluster refused one or did not answer.
    """
    from dtj.client import ApiError, Unavailable
    from dtj.client.checks import check
    from dtj.client.manifests import sound

    code = Exit.OK
    created = []
    for manifest, namespace in client.placed(sound(check(files, None))):
        try:
            job = await client.create(manifest, namespace=namespace)
        except Unavailable:
            raise
        except ApiError as error:
            say(refusal(manifest, error), err=True)
            code = Exit.API
        else:
            created.append(job.name)
            say(f"{named(job.name)} created")
    if len(created) == 1 and sys.stdout.isatty():
        say(f"Follow it: {next_command('status', *created)}", err=True)
    return code


def refusal(manifest: Manifest, error: ApiError) -> str:
    """Why the cluster did not take a manifest, in one line."""
    from dtj.client import AlreadyExists

    what = f"{manifest.document.title}: {format_api_error(error)}"
    if isinstance(error, AlreadyExists):
        name = manifest.job.name
        return f"{what}: choose another metadata.name, or delete that job first ({next_command('delete', name)})"
    return what
