"""Gathers a report and writes its file, whole or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.formatting import counted, short_number, shown_path
from dtj.cli.common.local_run import NoManifest
from dtj.cli.common.terminal import say
from dtj.cli.report import cluster
from dtj.cli.report import run as local_run
from dtj.cli.report.bundle import files, packed, plain
from dtj.cli.report.evidence import Evidence
from dtj.cli.report.page import render_page
from dtj.cli.report.redaction import without_secrets
from dtj.cli.report.view import page_view
from dtj.client import AsyncClient
from dtj.local import run_directory
from dtj.local.run_directory import NoSuchRun

_ADVICE = "Read the report before you pass it on: programs may print secrets that cannot be recognised."


STANDARD_OUTPUT: Final = Path("-")


def report_run(run: str, runs: Path, *, html: bool, output: Path | None) -> int:
    """Write the report of a run on this machine. Returns the exit code."""
    try:
        evidence = local_run.gather(run_directory.find(run, runs))
    except (NoSuchRun, NoManifest) as error:
        say(str(error), err=True)
        return Exit.USAGE
    return _write(without_secrets(evidence), html=html, output=output)


async def report_job(client: AsyncClient, name: str, *, logs: bool, html: bool, output: Path | None) -> int:
    """Write the report of a job on a cluster. Returns the exit code. Raises ApiError."""
    evidence = await cluster.gather(client, name, logs=logs)
    return _write(without_secrets(evidence), html=html, output=output)


def _write(cleaned: Evidence, *, html: bool, output: Path | None) -> int:
    folder = f"dtj-report-{plain(cleaned.name)}"
    file = output or Path(f"{folder}.html" if html else f"{folder}.tar.gz")
    if html:
        content, what = render_page(page_view(cleaned)).encode(errors="replace"), "a page"
    else:
        contents = files(cleaned)
        content, what = packed(contents, folder=folder, at=cleaned.taken_at), counted(len(contents), "file")
    code = _written(file, content, what)
    if code == Exit.OK and file != STANDARD_OUTPUT and cleaned.unread:
        where = "its end" if html else "its INDEX"
        say(f"{counted(len(cleaned.unread), 'thing')} could not be read: {where} lists them.")
    return code


def _written(file: Path, content: bytes, what: str) -> int:
    """Write the file and say so. Returns the exit code."""
    try:
        _replace(file, content)
    except OSError as error:
        say(f"--output: {file}: cannot be written: {error.strerror}; choose another file with -o", err=True)
        return Exit.USAGE
    if file != STANDARD_OUTPUT:
        shown = shown_path(file.absolute(), base=Path.cwd())
        say(f"Wrote {shown}: {what}, {short_number(len(content))} bytes.")
        say(_ADVICE)
    return Exit.OK


def _replace(file: Path, content: bytes) -> None:
    """Write the whole file, or leave the old one; readable by its owner only, because logs may hold anything."""
    if file == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with open(draft, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            opened.write(content)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
