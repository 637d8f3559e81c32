"""The entry point of ``dtj`` and ``kubectl-dtj``."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import click

from dtj import __version__
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.formatting import shown_path
from dtj.cli.common.sections import Section, SectionedGroup
from dtj.cli.common.terminal import SafeHandler, say_lines, show_error
from dtj.cli.completion.command import PROGRAM, VARIABLE, completion
from dtj.cli.convert.command import convert_files
from dtj.cli.doctor.command import doctor
from dtj.cli.explain.command import explain
from dtj.cli.init.command import init
from dtj.cli.list.command import list_jobs
from dtj.cli.logs.command import logs
from dtj.cli.report.command import report
from dtj.cli.run.command import run
from dtj.cli.status.command import status
from dtj.cli.steer.command import delete, resume, scale, suspend
from dtj.cli.submit.command import submit
from dtj.cli.tensorboard.command import tensorboard
from dtj.cli.validate.command import validate
from dtj.cli.wait.command import wait

START = """\
dtj trains TensorFlow models from one manifest, on this machine or on a cluster.

  dtj init first                  write a manifest and a script to start from
  cd first && dtj run job.yaml    train on this machine
  dtj explain job.yaml            what a cluster would be asked for
  dtj run --cluster job.yaml      train on a cluster, and follow it from here

Have a TFJob of Kubeflow? dtj convert tfjob.yaml > job.yaml

dtj COMMAND --help explains a command; dtj --help lists them all."""


@click.group(cls=SectionedGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dtj", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """TensorFlow's distribution strategies from one manifest, on this machine or on a cluster."""
    if context.invoked_subcommand is None:
        say_lines(START)
    return Exit.OK


cli.add_command(init, section=Section.START)
cli.add_command(validate, section=Section.START)
cli.add_command(explain, section=Section.START)
cli.add_command(run, section=Section.LOCAL)
cli.add_command(submit, section=Section.CLUSTER)
cli.add_command(wait, section=Section.CLUSTER)
cli.add_command(list_jobs, section=Section.LOOK)
cli.add_command(status, section=Section.LOOK)
cli.add_command(logs, section=Section.LOOK)
cli.add_command(tensorboard, section=Section.LOOK)
cli.add_command(report, section=Section.LOOK)
cli.add_command(doctor, section=Section.LOOK)
cli.add_command(suspend, section=Section.STEER)
cli.add_command(resume, section=Section.STEER)
cli.add_command(scale, section=Section.STEER)
cli.add_command(delete, section=Section.STEER)
cli.add_command(convert_files, section=Section.TOOLS)
cli.add_command(completion, section=Section.TOOLS)


def main() -> NoReturn:
    """Run the command line, and leave with one of :class:`~dtj.cli.common.exit_codes.Exit`."""
    logging.lastResort = SafeHandler(logging.WARNING)
    try:
        code = cli.main(prog_name=_program(Path(sys.argv[0])), complete_var=VARIABLE, standalone_mode=False)
    except click.ClickException as error:
        show_error(error)
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
    return PROGRAM if shutil.which(PROGRAM) else shown_path(file.absolute(), base=Path.cwd())


if __name__ == "__main__":
    main()
