"""``dtj validate``: checks manifests as an API server would, without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.platform_option import platform_option
from dtj.cli.common.terminal import say

if TYPE_CHECKING:
    from dtj.core.platform import Platform


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@platform_option
def validate(files: tuple[str, ...], platform: Platform) -> int:
    """Check manifests without a cluster.

    Prints for each document of each FILE (- is standard input) that it is valid, or what is wrong with it and how to
    fix it, in the same words as `kubectl apply`. Objects of other kinds are left alone, with a note.

    Exit codes: 0 all are valid, 2 some are not.
    """
    from dtj.client.checks import Manifest, Note, check

    checked = check(files, platform)
    for item in checked.items:
        if isinstance(item, Manifest):
            say(f"{item.document.file}: {item.job.name}: valid")
            continue
        for line in (item.line,) if isinstance(item, Note) else item:
            say(line, err=True)
    return Exit.USAGE if checked.problems else Exit.OK
