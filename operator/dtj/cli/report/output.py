"""Gathers a report and writes its page: the whole file or none of it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

from dtj.cli.common.formatting import counted, short_number, shown_path
from dtj.cli.common.terminal import Exit, say
from dtj.cli.report import cluster
from dtj.cli.report import run as local_run
from dtj.cli.report.evidence import Evidence
from dtj.cli.report.page import render_page
from dtj.cli.report.redaction import without_secrets
from dtj.client import AsyncClient
from dtj.local import run_directory
from dtj.local.run_directory import RunError

STANDARD_OUTPUT: Final = Path("-")


def report_run(run: str, runs: Path, *, output: Path | None) -> int:
    """Write the report of a run on this machine. Returns the exit code."""
    try:
        evidence = local_run.gather(run_directory.find(run, runs))
    except RunError as error:
        say(str(error), err=True)
        return Exit.USAGE
    return _report(evidence, output)


async def report_job(client: AsyncClient, name: str, *, logs: bool, output: Path | None) -> int:
    """Write the report of a job on a cluster. Returns the exit code. Raises ApiError."""
    return _report(await cluster.gather(client, name, logs=logs), output)


def _report(evidence: Evidence, output: Path | None) -> int:
    # Kubernetes' names stay as they are, a folder that others made may hold any.
    plain = re.sub(r"[^\w.-]", "_", evidence.name)
    file = output or Path(f"dtj-report-{plain}.html")
    content = render_page(without_secrets(evidence)).encode(errors="replace")
    try:
        _replace(file, content)
    except OSError as error:
        say(f"--output: {file}: cannot be written: {error.strerror}; choose another file with -o", err=True)
        return Exit.USAGE
    if file != STANDARD_OUTPUT:
        shown = shown_path(file.absolute(), base=Path.cwd())
        say(f"Wrote {shown}: a page, {short_number(len(content))} bytes.")
        say("Read the report before you pass it on: programs may print secrets that cannot be recognised.")
        if evidence.unread:
            say(f"{counted(len(evidence.unread), 'thing')} could not be read: the end of the page lists them.")
    return Exit.OK


def _replace(file: Path, content: bytes) -> None:
    """Write the whole file, or leave the old one; readable by its owner only, because logs may hold anything.

    A link stays, and its target is replaced. A device or a pipe stays too, and gets the bytes. Raises OSError.
    """
    if file == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    elif _exists(file) and not file.is_file():  # as root, a file in the place of /dev/null breaks the machine
        with open(file, "wb") as opened:
            opened.write(content)
    else:
        _replace_regular(Path(os.path.realpath(file)), content)


def _exists(file: Path) -> bool:
    """Raises OSError, also for links in a circle."""
    try:
        file.stat()
    except FileNotFoundError:
        return False
    return True


def _replace_regular(file: Path, content: bytes) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(draft, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            opened.write(content)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
