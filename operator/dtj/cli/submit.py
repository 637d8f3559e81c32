"""``dtj submit``: creates jobs on a cluster, after all of them were checked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import commands_in, report_error, with_client
from dtj.cli.common.formatting import named
from dtj.cli.common.options import Place, code_option, place_options
from dtj.cli.common.terminal import Exit, say, write

if TYPE_CHECKING:
    from dtj.api.json import JsonObject
    from dtj.client import AsyncClient


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@code_option
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("yaml", "json")),
    help="Print what would be created, for kubectl, and create nothing; no cluster is needed.",
)
@place_options
def submit(files: tuple[str, ...], code: str | None, form: str | None, place: Place) -> int:
    """Submit jobs to a cluster.

    Creates the jobs of each FILE (- is standard input). All are checked first, as `dtj validate --server` does, except
    for accelerator profiles, which the operator checks. If one is invalid, none is created.

    Exit codes: 0 all were created, 2 bad input, 4 the cluster refused one or did not answer.
    """
    if form is not None:
        return _print(files, code, form, place)
    return with_client(place, lambda client: _create(client, files, code))


async def _create(client: AsyncClient, files: tuple[str, ...], code: str | None) -> int:
    from dtj.api.json import dig, text
    from dtj.cli.common.submission import create_or_report, with_code_of
    from dtj.client.checks import check, sound

    exit_code = Exit.OK
    created = []
    jobs = with_code_of(client.placed(sound(check(files, None))), code)
    await client.check(jobs)
    for manifest, namespace in jobs:
        job = await create_or_report(manifest, client, namespace=namespace)
        if job is None:
            exit_code = Exit.API
            continue
        again = commands_in(job.namespace, usual=client.namespace)
        created.append(again(("dtj", "status", job.name)))
        if manifest.config_map is not None:
            say(f"configmap/{text(dig(manifest.config_map, 'metadata', 'name'))} created")
        elsewhere = f" in namespace {job.namespace}" if job.namespace != client.namespace else ""
        say(f"{named(job.name)} created{elsewhere}")
    if len(created) == 1 and sys.stdout.isatty():
        say(f"Follow it: {created[0]}", err=True)
    return exit_code


def _print(files: tuple[str, ...], code: str | None, form: str, place: Place) -> int:
    """Print the objects that :func:`_create` creates, a ConfigMap before its job."""
    from dtj.cli.common.formatting import as_json, as_yaml
    from dtj.cli.common.submission import with_code_of
    from dtj.client import ClientError
    from dtj.client.checks import check, placed, sound

    try:
        jobs = with_code_of(placed(sound(check(files, None)), namespace="", asked=place.namespace), code)
    except ClientError as error:
        return report_error(error)
    bodies = [_in_namespace(body, namespace) for job, namespace in jobs for body in job.objects]
    write(as_yaml(bodies) if form == "yaml" else as_json(bodies))
    return Exit.OK


def _in_namespace(body: JsonObject, namespace: str) -> JsonObject:
    """The object with its namespace. An empty one is for kubectl to choose."""
    from dtj.api.json import fields_of

    if not namespace:
        return body
    return {**body, "metadata": {**fields_of(body["metadata"]), "namespace": namespace}}
