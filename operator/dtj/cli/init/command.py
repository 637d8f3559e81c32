"""``dtj init``: a manifest and a script to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dtj.api.names import job_name_from
from dtj.api.strategies import MAX_REPLICAS, Strategy
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.formatting import counted
from dtj.cli.common.options import OneOf, WholeNumber
from dtj.cli.common.terminal import say
from dtj.cli.init.starter import MANIFEST, SCRIPT, Starter, Style, Unsuitable, starter


@click.command("init")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--strategy",
    type=OneOf(Strategy),
    default=str(Strategy.MULTI_WORKER_MIRRORED),
    show_default=True,
    help="How the workers work together.",
)
@click.option(
    "--workers",
    type=WholeNumber(1, MAX_REPLICAS),
    metavar="N",
    help="Number of workers. Default: what suits the strategy.",
)
@click.option(
    "--style",
    type=OneOf(Style),
    default=str(Style.MODEL),
    show_default=True,
    help="model: two functions, and the trainer runs the loop; session: your own loop with a few added lines; "
    "script: any script.",
)
@click.option("--name", metavar="NAME", help="Name of the job. Default: the name of the directory.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init(directory: Path, strategy: Strategy, workers: int | None, style: Style, name: str | None, force: bool) -> int:
    """Write a manifest and a training script to start from.

    DIR gets job.yaml and train.py, which run as they are. Then replace the example's model and data with your own.

    Exit codes: 0 done, 2 bad input.
    """
    import yaml

    from dtj.api.validation import validate

    job_name = name or job_name_from(directory.absolute().name)
    try:
        made = starter(name=job_name, strategy=strategy, style=style, workers=workers)
    except Unsuitable as error:
        say(str(error), err=True)
        return Exit.USAGE
    # The name is written into the manifest unchecked: an invalid one could change the manifest's structure.
    plain = starter(name="plain", strategy=strategy, style=style, workers=workers)
    found = validate({**yaml.safe_load(plain.manifest), "metadata": {"name": job_name}})
    present = [directory / file for file in (MANIFEST, SCRIPT) if (directory / file).exists()]
    if found or (present and not force):
        for violation in found:
            named = f'--name "{name}"' if name and violation.field == "metadata.name" else violation.field
            say(f"{named}: {violation.message}", err=True)
        for file in () if found else present:
            say(f"{file}: already exists: use --force to overwrite it, or name another directory", err=True)
        return Exit.USAGE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MANIFEST).write_text(made.manifest, encoding="utf-8")
        (directory / SCRIPT).write_text(made.script, encoding="utf-8")
    except OSError as error:
        say(f"{error.filename or directory}: cannot be written: {error.strerror}", err=True)
        return Exit.USAGE
    _say_next(directory, made)
    return Exit.OK


def _say_next(directory: Path, made: Starter) -> None:
    say(f"Wrote {directory / MANIFEST} and {directory / SCRIPT}. Next:")
    say("")
    if directory.absolute() != Path.cwd():
        say(f"  cd {shlex.quote(str(directory))}")
    commands = {
        f"dtj run {MANIFEST}": f"train here, {counted(made.workers, 'worker')}",
        f"dtj explain {MANIFEST}": "what a cluster would be asked for",
        f"dtj run --cluster --code . {MANIFEST}": "train on a cluster",
    }
    width = max(map(len, commands))
    for command, purpose in commands.items():
        say(f"  {command:{width}}    {purpose}")
