"""``dtj explain``: what a manifest would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dtj.api.strategies import Role
from dtj.cli.common.options import NamespaceName, OneOf, gone, platform_option

if TYPE_CHECKING:
    from dtj.core.platform import Platform


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml", "json"]),
    default="table",
    show_default=True,
    help="Sections for people, or the objects themselves.",
)
@click.option("--role", type=OneOf(Role), help="Show only the pods of this role, with the TF_CONFIG of each.")
@click.option(
    "-n",
    "--namespace",
    type=NamespaceName(),
    metavar="NAME",
    help="The namespace of manifests that name none. Default: default.",
)
@platform_option
@gone("--attempt", instead="later attempts have the same pods, under names that end in -r1, -r2, ...")
@gone("--field", instead="docs/reference.md has all fields, kubectl explain dtj.spec those of a cluster")
def explain(
    files: tuple[str, ...],
    output: str,
    role: Role | None,
    namespace: str | None,
    platform: Platform,
) -> int:
    """Show what would be created for manifests, without a cluster.

    For each job of each FILE (- is standard input): pods and their nodes, Service, claim and gang, TF_CONFIG and
    other variables, what restarts after a pod is lost, and how the job ends. The operator's own planner computes it.

    Exit codes: 0 done, 2 bad input.
    """
    from dtj.cli.explain.render import show_objects

    return show_objects(files, output=output, role=role, namespace=namespace or "default", platform=platform)
