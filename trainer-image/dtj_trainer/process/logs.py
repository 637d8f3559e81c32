"""The trainer's log lines: how they look, from which level on, and which versions they name. Standard library only.

`dtj_launch.logs` has the formats, and says how they stay apart from what a script logs.
"""

import logging
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from dtj_launch import logs
from dtj_launch.logs import LogOptions

log = logging.getLogger(__name__)

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


PACKAGES = ("dtj-trainer", "tensorflow", "tensorflow-cpu", "keras", "tf_keras", "numpy")


def log_versions(level: int) -> None:
    """Writes one line, which `dtj report` reads: `versions: python 3.11.9, tensorflow 2.21.0, ...`."""
    found = {"python": platform.python_version(), **_installed()}
    words = ", ".join(f"{name} {number}" for name, number in found.items())
    log.log(level, f"versions: {words}", extra=logs.fields(versions=found))


def _installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
