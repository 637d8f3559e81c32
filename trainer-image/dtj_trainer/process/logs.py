"""The trainer's log lines: how they look, from which level on, and what each JSON line has. Standard library only.

`dtj_launch.logs` has the formats, and says how they stay apart from what a script logs.
"""

from collections.abc import Mapping

from dtj_launch import logs
from dtj_launch.logs import LogOptions

_LOGGERS = ("dtj_trainer", "dtj_launch")
"""Parts of the launcher, such as the start gate, run in the trainer's process."""


def configure(options: LogOptions, environ: Mapping[str, str], *, task: object = None) -> None:
    """Has the trainer's lines go to standard output, and errors to standard error.

    Args:
        task: role and index, if known from TF_CONFIG.
    """
    context = logs.context_of(environ)
    if task is not None:
        context["task"] = str(task)
    for logger in _LOGGERS:
        logs.configure(logger, options, plain=logs.PlainFormatter("dtj_trainer"), context=context)


def enable() -> None:
    """Has the end of a process logged, also after a script's `logging.config.dictConfig` disabled all loggers."""
    for logger in _LOGGERS:
        logs.enable(logger)


def configure_early(environ: Mapping[str, str]) -> None:
    """For the lines before the command line is read, of what is wrong with it among others."""
    configure(logs.from_environment(environ), environ)
