"""The entry point of ``dtj`` and ``kubectl-dtj``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import click

from dtj import __version__
from dtj.cli.exit_codes import Exit
from dtj.cli.list_jobs import list_jobs
from dtj.cli.quantities import shown_path
from dtj.cli.run import run
from dtj.cli.tensorboard import tensorboard
from dtj.cli.validate import validate

_START = """\
dtj trains TensorFlow models from one manifest, on this machine or on a cluster.

  dtj validate examples/digits.yaml       check a manifest
  dtj run examples/digits.yaml            train on this machine
  kubectl apply -f examples/digits.yaml   train on a cluster

dtj COMMAND --help explains a command; dtj --help lists them all."""


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dtj", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """TensorFlow's distribution strategies from one manifest, on this machine or on a cluster."""
    if context.invoked_subcommand is None:
        click.echo(_START)
    return Exit.OK


cli.add_command(list_jobs)
cli.add_command(run)
cli.add_command(tensorboard)
cli.add_command(validate)


def main() -> NoReturn:
    """Run the command line, and leave with one of :class:`~dtj.cli.exit_codes.Exit`."""
    try:
        code = cli.main(prog_name=_program(Path(sys.argv[0])), standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = Exit.SIGNAL + 2
    except BrokenPipeError:
        # Whoever read our output has gone, and Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.SIGNAL + 13
    sys.exit(code)


def _program(file: Path) -> str:
    """What a person types to come here: ``kubectl dtj`` where we are a plugin, the path where there is no other way."""
    if file.name.startswith("kubectl-"):
        return file.name.replace("-", " ")
    return "dtj" if shutil.which("dtj") else shown_path(file.absolute(), base=Path.cwd())


if __name__ == "__main__":
    main()
