"""Gathers a report, and writes it as a bundle of files or as one page: the whole file or none of it."""

from __future__ import annotations

import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from dtj import __version__
from dtj.api.json import JsonObject, dig, text
from dtj.api.printable import printable
from dtj.cli.common.formatting import as_yaml, counted, short_number, shown_path
from dtj.cli.common.terminal import Exit, say
from dtj.cli.report import cluster
from dtj.cli.report import run as local_run
from dtj.cli.report.evidence import Evidence, event_count, event_time
from dtj.cli.report.page import clock, render_page
from dtj.cli.report.redaction import without_secrets
from dtj.client import AsyncClient
from dtj.local import run_directory
from dtj.local.run_directory import NoSuchRun
from dtj.local.run_record import NoManifest

INDEX: Final = "INDEX"
STANDARD_OUTPUT: Final = Path("-")


def report_run(run: str, runs: Path, *, html: bool, output: Path | None) -> int:
    """Write the report of a run on this machine. Returns the exit code."""
    try:
        evidence = local_run.gather(run_directory.find(run, runs))
    except (NoSuchRun, NoManifest) as error:
        say(str(error), err=True)
        return Exit.USAGE
    return _report(without_secrets(evidence), html=html, output=output)


async def report_job(client: AsyncClient, name: str, *, logs: bool, html: bool, output: Path | None) -> int:
    """Write the report of a job on a cluster. Returns the exit code. Raises ApiError."""
    evidence = await cluster.gather(client, name, logs=logs)
    return _report(without_secrets(evidence), html=html, output=output)


def _report(cleaned: Evidence, *, html: bool, output: Path | None) -> int:
    folder = f"dtj-report-{_plain(cleaned.name)}"
    file = output or Path(f"{folder}.html" if html else f"{folder}.tar.gz")
    if html:
        content, what = render_page(cleaned).encode(errors="replace"), "a page"
    else:
        contents = files(cleaned)
        content, what = _packed(contents, folder=folder, at=cleaned.taken_at), counted(len(contents), "file")
    try:
        _replace(file, content)
    except OSError as error:
        say(f"--output: {file}: cannot be written: {error.strerror}; choose another file with -o", err=True)
        return Exit.USAGE
    if file != STANDARD_OUTPUT:
        shown = shown_path(file.absolute(), base=Path.cwd())
        say(f"Wrote {shown}: {what}, {short_number(len(content))} bytes.")
        say("Read the report before you pass it on: programs may print secrets that cannot be recognised.")
        if cleaned.unread:
            where = "its end" if html else "its INDEX"
            say(f"{counted(len(cleaned.unread), 'thing')} could not be read: {where} lists them.")
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


# -- the bundle -------------------------------------------------------------------------------------------------


def files(evidence: Evidence) -> dict[str, str]:
    """Path in the bundle -> content, the list of all of them among them."""
    found = {
        "page.html": render_page(evidence),
        "job.yaml": _yaml(evidence.job),
        "status.yaml": _yaml({"status": evidence.job.get("status")}),
        **{f"pods/{_plain(text(dig(pod, 'metadata', 'name')))}.yaml": _yaml(pod) for pod in evidence.pods},
        "events.txt": "".join(map(_event_line, evidence.events)),
        **{f"{name}.yaml": _yaml(*items) for name, items in evidence.objects.items()},
        **{f"{name}.txt": content for name, content in evidence.texts.items()},
        **{f"logs/{_plain(log.name)}.log": log.text for log in evidence.logs},
    }
    # A person looks at them with cat, and logs hold whatever programs wrote.
    present = {path: printable(content) for path, content in found.items() if content}
    return {INDEX: printable("".join(f"{line}\n" for line in _index(evidence, present))), **present}


def _index(evidence: Evidence, present: Mapping[str, str]) -> Iterator[str]:
    yield f"Report on {evidence.name}, {evidence.source}, as of {clock(evidence.taken_at)}, by dtj {__version__}"
    yield ""
    yield "Values of environment variables, arguments and annotations are left out, and what looks like a secret in"
    yield "other text. Programs may have printed other secrets: look through the logs."
    if not evidence.logs and not evidence.on_this_machine:
        yield "Logs are left out unless --logs is given."
    yield ""
    yield "Files"
    yield from (f"  {path}  ({len(content.encode(errors='replace'))} bytes)" for path, content in present.items())
    yield ""
    yield "Could not be read"
    yield from [f"  {item.what}: {' '.join(item.why.split())}" for item in evidence.unread] or ["  (nothing)"]


def _event_line(event: JsonObject) -> str:
    regarding = f"{text(dig(event, 'regarding', 'kind'))} {text(dig(event, 'regarding', 'name'))}"
    words = (event_time(event), text(event.get("type")), text(event.get("reason")), regarding)
    count = event_count(event)
    note = " ".join(text(event.get("note")).split()) + (f" (x{count})" if count > 1 else "")
    return "  ".join((*words, note)) + "\n"


def _yaml(*items: Mapping[str, object]) -> str:
    return as_yaml(item for item in items if any(value is not None for value in item.values()))


def _plain(name: str) -> str:
    """A name as a part of a file's: Kubernetes' names stay as they are, a folder that others made may hold any."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "unnamed"


def _packed(contents: Mapping[str, str], *, folder: str, at: datetime) -> bytes:
    """A tar.gz with the files in one folder, readable by their owner alone once they are unpacked."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path, content in contents.items():
            data = content.encode(errors="replace")
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size, member.mtime, member.mode = len(data), int(at.timestamp()), 0o600
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()
