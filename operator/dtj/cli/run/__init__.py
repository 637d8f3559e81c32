"""``dtj run``: runs manifests on this machine or on a cluster, one after the other."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from dtj.cli.common.options import Duration, Place, code_option, place_options, runs_option
from dtj.cli.init import MANIFEST


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]")
@runs_option("The folder for runs: each is in DIR/<job>/<time>, the newest also in DIR/<job>/latest.")
@click.option("--resume", is_flag=True, help="Resume the job's latest run from its last checkpoint.")
@click.option(
    "--timeout",
    type=Duration(),
    metavar="DURATION",
    help="Stop a job after this time, such as 10m; with --cluster stop following it instead, and it continues to run.",
)
@click.option(
    "--trainer-python",
    metavar="PATH",
    help="The Python, or the virtual environment, that has TensorFlow and dtj_trainer. Default: $DTJ_TRAINER_PYTHON, "
    "or that of the checkout, or the one that runs dtj.",
)
@click.option("--ignore-memory", is_flag=True, help="Run even if memory seems too small.")
@click.option(
    "--cluster",
    "on_cluster",
    is_flag=True,
    help="Submit to a cluster and follow the job; Ctrl-C detaches, and the job continues to run.",
)
@code_option
@place_options
def run(
    files: tuple[str, ...],
    runs: Path,
    resume: bool,
    timeout: float | None,
    trainer_python: str | None,
    ignore_memory: bool,
    on_cluster: bool,
    code: str | None,
    place: Place,
) -> int:
    """Run manifests here, or with --cluster on a cluster.

    Runs the jobs of each FILE in order: - is standard input, and job.yaml is the default. On this machine each
    replica is a process. A closed terminal stops the job as Ctrl-C does. If only its output can no longer be
    written, it continues.

    Exit codes: 0 done, 1 a job failed, 2 bad input, 3 the time was over, 4 the cluster refused or does not answer,
    130 after Ctrl-C, which stops the job on this machine, and leaves it on a cluster.
    """
    context = click.get_current_context()
    _check_options(context, on_cluster)
    files = files or _manifest_here()
    if on_cluster:
        from dtj.cli.run.on_cluster import run_files as run_files_on_cluster

        return run_files_on_cluster(files, place, code=code, timeout=timeout)
    from dtj.cli.run.on_this_machine import Options
    from dtj.cli.run.on_this_machine import run_files as run_files_here

    options = Options(runs=runs, resume=resume, timeout=timeout, ignore_memory=ignore_memory, command=_command(context))
    return run_files_here(files, options, trainer_python=trainer_python)


_HERE = ("runs", "resume", "trainer_python", "ignore_memory")
_THERE = ("code", "namespace", "context", "kubeconfig")
"""The parameters that have a meaning only on this machine, and only on a cluster."""


def _manifest_here() -> tuple[str, ...]:
    """The manifest that `dtj init` writes. Raises UsageError if this folder has none."""
    if not Path(MANIFEST).is_file():
        raise click.UsageError(f"there is no {MANIFEST} here: give a FILE, or type `dtj init` to write one")
    return (MANIFEST,)


def _check_options(context: click.Context, on_cluster: bool) -> None:
    """Refuse options that would be without effect. Raises UsageError."""
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if given and name in (_HERE if on_cluster else _THERE):
            why = "is for runs on this machine: leave out this option or --cluster" if on_cluster else "needs --cluster"
            raise click.UsageError(f"{option.opts[-1]} {why}")


def _command(context: click.Context) -> tuple[str, ...]:
    """The command with what was given of the options that the next run of the job needs, too."""
    values = {"runs": "--output-dir", "trainer_python": "--trainer-python"}
    given = {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    options = [word for name, option in values.items() if name in given for word in (option, str(context.params[name]))]
    return (*context.command_path.split(), *options, *(("--ignore-memory",) if "ignore_memory" in given else ()))
