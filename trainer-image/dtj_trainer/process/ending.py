"""How the process ends: the last line, for the log and for the pod's status, and the exit code that goes with it."""

import logging
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from dtj_trainer.process import logs
from dtj_trainer.process.errors import TrainerError
from dtj_trainer.process.exit_codes import ExitCode

log = logging.getLogger(__name__)

_KUBERNETES_LOG = Path("/dev/termination-log")
_KUBERNETES_LIMIT = 4096


class ProcessEnd:
    """A context that the process does not outlive: it leaves with one of `ExitCode`, or as `SystemExit` says."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, SystemExit):
            # A script's own way to end: with its exit handlers, and what Python does with a text.
            return
        if error is not None:
            end_with(error)
        leave(ExitCode.DONE)


def end_with(error: BaseException) -> NoReturn:
    """Says why the process ends, in one line for what was expected and with a traceback otherwise, and leaves."""
    logs.enable()
    if isinstance(error, TrainerError):
        line, code = str(error), error.exit_code
        log.error(line)
    else:
        line, code = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1], ExitCode.FAILED
        log.error(line, exc_info=error)
    leave_message(line)
    leave(code)


def leave(code: int) -> NoReturn:
    """Ends the process now: TensorFlow's own tear-down takes 1 to 15 seconds and has nothing left to do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave_message(line: str) -> None:
    """Writes the line where Kubernetes looks for a container's last words; a later one takes its place."""
    given = os.environ.get("DTJ_TERMINATION_LOG")
    path = Path(given) if given else _KUBERNETES_LOG
    if not given and not os.access(path, os.W_OK):
        return
    try:
        path.write_text(line[:_KUBERNETES_LIMIT] + "\n")
    except OSError as error:
        log.warning(f"termination message not written to {path}: {error.strerror}")
