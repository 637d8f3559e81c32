"""``dtj convert``: converts TFJobs of Kubeflow."""

from __future__ import annotations

import click

from dtj.api.strategies import Strategy
from dtj.cli.common.options import OneOf
from dtj.cli.common.terminal import Exit, say, write


@click.command("convert")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option(
    "--strategy",
    type=OneOf(Strategy),
    help="The strategy that the script uses. Default: the one that fits the roles.",
)
def convert_files(files: tuple[str, ...], strategy: Strategy | None) -> int:
    """Convert Kubeflow's TFJobs to DistributedTrainingJobs, on standard output.

    Each job begins with a comment that lists what was left out and what to check; the same lines go to standard
    error. Other objects of a FILE (- is standard input) are printed unchanged. Comments of the FILE are lost.

    Exit codes: 0 done, 2 no TFJob, or none that Kubeflow would run.
    """
    from dtj.cli.convert.tfjob import converted
    from dtj.cli.convert.tfjob_pods import NotConvertible
    from dtj.client.manifest_files import UnreadableFile

    try:
        made = converted(files, strategy)
    except (UnreadableFile, NotConvertible) as error:
        say(str(error), err=True)
        return Exit.USAGE
    write("---\n".join(made))
    return Exit.OK
