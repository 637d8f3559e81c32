"""``dtj explain``: what a manifest would make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from dtj.api.strategies import Role
from dtj.cli.common.connection import with_client
from dtj.cli.common.options import FileOrJob, OnCluster, OneOf, Place, place_options, platform_option

if TYPE_CHECKING:
    from dtj.client import AsyncClient
    from dtj.client.manifest_files import Document
    from dtj.core.platform import Platform


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|NAME...", type=FileOrJob())
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="Format of the objects.",
)
@click.option("--role", type=OneOf(Role), help="Of the pods, show only those of this role.")
@platform_option
@place_options
def explain(
    sources: tuple[str | OnCluster, ...],
    output: str,
    role: Role | None,
    platform: Platform,
    place: Place,
) -> int:
    """Show what would be created for manifests, without a cluster.

    For each job of each FILE (- is standard input): the objects, such as pods with their TF_CONFIG, Service, claim
    and gang; below them, in comments, what restarts when a pod is lost. The operator's own planner computes it.

    A NAME for which there is no file is that of a job on the cluster, tfjob/NAME that of a TFJob: it is explained as
    it is stored, from its first attempt on. Manifests without a namespace are in that of -n, or in default.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer.
    """
    from dtj.cli.explain.render import show_objects
    from dtj.client.checks import documents

    def show(found: Iterable[Document | str]) -> int:
        return show_objects(found, output=output, role=role, namespace=place.namespace or "default", platform=platform)

    async def show_with(client: AsyncClient) -> int:
        found: list[Document | str] = []
        for source in sources:
            found.extend([await _stored(client, source.name)] if isinstance(source, OnCluster) else documents(source))
        return show(found)

    files = [source for source in sources if not isinstance(source, OnCluster)]
    if len(files) < len(sources):
        return with_client(place, show_with)
    if place.context is not None or place.kubeconfig is not None:
        raise click.UsageError("--context and --kubeconfig are for a job on the cluster: give its name")
    return show(document for file in files for document in documents(file))


async def _stored(client: AsyncClient, name: str) -> Document:
    """A job as the cluster has it. Raises ApiError."""
    from dtj.client import job_names
    from dtj.client.manifest_files import Document

    body = await job_names.read(client.gateway, name, namespace=client.namespace)
    return Document(path=None, number=1, alone=True, body=body, file=f"namespace {client.namespace}")
