"""Runs a command and writes down what it took: `measured.py FILE COMMAND...`.

FILE gets one line: seconds of wall clock, and CPU seconds of the command with all that it started. Processes that lose
their parent come to this one, so that the servers of a test run count too. Linux alone knows such a thing; elsewhere
only processes with a parent are counted. The exit status is the command's.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def main(report: Path, command: list[str]) -> int:
    """Run the command; return its exit status, 128 and the number for a signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, lambda *_: None)  # it comes to the command as well, which decides
    start = time.monotonic()
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    status: int | None = None
    while status is None:
        pid, ended = os.wait()
        if pid == child.pid:
            status = os.waitstatus_to_exitcode(ended)
    child.returncode = status
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report.write_text(f"{time.monotonic() - start:.1f} {used.ru_utime + used.ru_stime:.1f}\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
