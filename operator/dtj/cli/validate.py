"""``dtj validate``: checks manifests as an API server would, without one or, on demand, with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import with_client
from dtj.cli.common.options import Place, place_options, platform_option
from dtj.cli.common.terminal import Exit, say

if TYPE_CHECKING:
    from dtj.client import AsyncClient
    from dtj.client.checks import Checked, Manifest
    from dtj.core.platform import Platform


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option(
    "--server",
    is_flag=True,
    help="Ask the cluster too, by a dry run of the job, its pods, Services and claim, as `dtj submit` does.",
)
@platform_option
@place_options
def validate(files: tuple[str, ...], server: bool, platform: Platform, place: Place) -> int:
    """Check manifests, without a cluster or with one.

    Prints for each document of each FILE (- is standard input) that it is valid, or what is wrong with it and how to
    fix it, in the same words as `kubectl apply`. Objects of other kinds are left alone, with a note.

    Exit codes: 0 all are valid, 2 some are not, 4 the cluster does not answer, or may not be asked about pods.
    """
    from dtj.client.checks import check

    if not server and place != Place():
        raise click.UsageError("--namespace, --context and --kubeconfig need --server")
    checked = check(files, platform, tfjobs=True)
    if server:
        return with_client(place, lambda client: _ask(client, checked))
    for item in checked.items:
        _say(item, ())
    return Exit.USAGE if checked.problems else Exit.OK


async def _ask(client: AsyncClient, checked: Checked) -> int:
    from dtj.client.checks import Manifest
    from dtj.client.server_check import check_on_server

    exit_code = Exit.USAGE if checked.problems else Exit.OK
    places = {id(manifest): where for manifest, where in client.placed(checked.manifests)}
    for item in checked.items:
        found: tuple[str, ...] = ()
        if isinstance(item, Manifest):
            answer = await check_on_server(client.gateway, item, namespace=places[id(item)])
            found = (*answer.problems, *answer.refusals)
            if found:
                exit_code = Exit.USAGE
            elif answer.unchecked:
                found = tuple(f"not all was checked: {words}" for words in answer.unchecked)
                exit_code = exit_code or Exit.API
        _say(item, found)
    return exit_code


def _say(item: Manifest | str | tuple[str, ...], found: tuple[str, ...]) -> None:
    """Print what there is to say of a document: ``found`` is what the cluster has against it."""
    from dtj.client.checks import Manifest

    if isinstance(item, Manifest) and not found:
        say(f"{item.document.file}: {item.job.name}: valid")
    elif isinstance(item, Manifest):
        for line in found:
            say(f"{item.document.title}: {line}", err=True)
    else:
        for line in (item,) if isinstance(item, str) else item:
            say(line, err=True)
