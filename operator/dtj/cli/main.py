"""The entry point of ``dtj`` and ``kubectl-dtj``."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Final, NoReturn

import click

from dtj import __version__
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.formatting import shown_path
from dtj.cli.common.sections import Entry, Section, SectionedGroup
from dtj.cli.common.terminal import SafeHandler, say_lines, show_error
from dtj.cli.completion import PROGRAM, VARIABLE

START = """\
dtj trains TensorFlow models from one manifest, on this machine or on a cluster.

  dtj init first                       write a manifest and a script to start from
  cd first && dtj run job.yaml         train on this machine
  dtj explain job.yaml                 what a cluster would be asked for
  dtj run --cluster --code . job.yaml  train on a cluster with the files of this directory, and follow it from here

Have a TFJob of Kubeflow? dtj convert tfjob.yaml > job.yaml

dtj COMMAND --help explains a command; dtj --help lists them all."""


COMMANDS: Final = (
    Entry("init", Section.START, "dtj.cli.init.command:init", "Write a manifest and a training script to start from."),
    Entry(
        "validate",
        Section.START,
        "dtj.cli.validate:validate",
        "Check manifests, without a cluster or with one.",
    ),
    Entry(
        "explain",
        Section.START,
        "dtj.cli.explain.command:explain",
        "Show what would be created for manifests, without a cluster.",
    ),
    Entry("run", Section.LOCAL, "dtj.cli.run.command:run", "Run manifests here, or with --cluster on a cluster."),
    Entry("submit", Section.CLUSTER, "dtj.cli.submit:submit", "Submit jobs to a cluster."),
    Entry("wait", Section.CLUSTER, "dtj.cli.wait:wait", "Wait for a job's end, or for a condition."),
    Entry("list", Section.LOOK, "dtj.cli.list:list_jobs", "List the jobs of a namespace, by name."),
    Entry("status", Section.LOOK, "dtj.cli.status.command:status", "Show how far a job is, and why it does not run."),
    Entry("logs", Section.LOOK, "dtj.cli.logs.command:logs", "Print the logs of a job's replicas, merged by time."),
    Entry(
        "tensorboard",
        Section.LOOK,
        "dtj.cli.tensorboard.command:tensorboard",
        "Show a job's curves in a browser, until Ctrl-C.",
    ),
    Entry(
        "report", Section.LOOK, "dtj.cli.report.command:report", "Gather what is known of a job, as files or a page."
    ),
    Entry(
        "doctor",
        Section.LOOK,
        "dtj.cli.doctor.command:doctor",
        "Check the cluster and the installation, and say what to do.",
    ),
    Entry("suspend", Section.STEER, "dtj.cli.steer:suspend", "Stop jobs so that they can be resumed."),
    Entry("resume", Section.STEER, "dtj.cli.steer:resume", "Resume suspended jobs from their last checkpoint."),
    Entry("scale", Section.STEER, "dtj.cli.steer:scale", "Set the number of workers of an elastic job."),
    Entry("delete", Section.STEER, "dtj.cli.steer:delete", "Delete jobs and their pods, without asking."),
    Entry(
        "convert",
        Section.TOOLS,
        "dtj.cli.convert.command:convert_files",
        "Convert Kubeflow's TFJobs to DistributedTrainingJobs, on standard output.",
    ),
    Entry(
        "completion",
        Section.TOOLS,
        "dtj.cli.completion.command:completion",
        "Print a script by which a shell completes commands and jobs.",
    ),
)
"""All commands. A test compares each summary with the command's own help."""


@click.group(
    cls=SectionedGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dtj", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """TensorFlow's distribution strategies from one manifest, on this machine or on a cluster."""
    if context.invoked_subcommand is None:
        say_lines(START)
    return Exit.OK


_ALLOCATIONS_TO_A_COLLECTION: Final = 50_000
"""Imports allocate much that stays. With Python's 700, the garbage collector looks at it again and again: a sixth of
the CPU time of ``dtj explain``."""


def main() -> NoReturn:
    """Run the command line, and leave with one of :class:`~dtj.cli.common.exit_codes.Exit`."""
    logging.lastResort = SafeHandler(logging.WARNING)
    gc.set_threshold(_ALLOCATIONS_TO_A_COLLECTION)
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
    except Exception:  # noqa: BLE001  # Python would leave with 1
        traceback.print_exc()
        code = Exit.DEFECT
    sys.exit(code)


def _program(file: Path) -> str:
    """What a person types to come here: ``kubectl dtj`` if this is a plugin, the path if there is no other way."""
    if file.name.startswith("kubectl-"):
        return file.name.replace("-", " ")
    if file.name == "__main__.py":
        return f"python -m {PROGRAM}"
    return PROGRAM if shutil.which(PROGRAM) else shown_path(file.absolute(), base=Path.cwd())


if __name__ == "__main__":
    main()
