"""The bundle of a job: evidence goes in, files come out, and an archive of them. Pure."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from dtj import __version__
from dtj.api.json import JsonObject, dig, text
from dtj.api.printable import printable
from dtj.cli.common.yaml_text import as_yaml
from dtj.cli.report.evidence import Evidence, event_count, event_time
from dtj.cli.report.page import render_page
from dtj.cli.report.view import clock, page_view

INDEX: Final = "INDEX"


def plain(name: str) -> str:
    """A name as a part of a file's: Kubernetes' names stay as they are, a folder that others made may hold any."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "unnamed"


def files(evidence: Evidence) -> dict[str, str]:
    """Path in the bundle -> content, the list of all of them among them."""
    found = {
        "page.html": render_page(page_view(evidence)),
        "job.yaml": _yaml(evidence.job),
        "status.yaml": _yaml({"status": evidence.job.get("status")}),
        **{f"pods/{plain(_name(pod))}.yaml": _yaml(pod) for pod in evidence.pods},
        "events.txt": "".join(_event_line(event) for event in evidence.events),
        **{f"{name}.yaml": _yaml(*items) for name, items in evidence.objects.items()},
        **{f"{name}.txt": content for name, content in evidence.texts.items()},
        **{f"logs/{plain(log.name)}.log": log.text for log in evidence.logs},
    }
    # A person looks at them with cat, and logs hold whatever programs wrote.
    present = {path: printable(content) for path, content in found.items() if content}
    return {INDEX: printable(_index(evidence, present)), **present}


def packed(contents: Mapping[str, str], *, folder: str, at: datetime) -> bytes:
    """A tar.gz with the files in one folder, readable by their owner alone once they are unpacked."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path, content in contents.items():
            data = content.encode(errors="replace")
            member = tarfile.TarInfo(f"{folder}/{path}")
            member.size, member.mtime, member.mode = len(data), int(at.timestamp()), 0o600
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def _index(evidence: Evidence, present: Mapping[str, str]) -> str:
    return "".join(f"{line}\n" for line in _index_lines(evidence, present))


def _index_lines(evidence: Evidence, present: Mapping[str, str]) -> Iterator[str]:
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
    yield from (f"  {item.what}: {' '.join(item.why.split())}" for item in evidence.unread)
    if not evidence.unread:
        yield "  (nothing)"


def _event_line(event: JsonObject) -> str:
    count = event_count(event)
    regarding = f"{text(dig(event, 'regarding', 'kind'))} {text(dig(event, 'regarding', 'name'))}"
    words = (event_time(event), text(event.get("type")), text(event.get("reason")), regarding)
    note = " ".join(text(event.get("note")).split())
    return "  ".join((*words, note + (f" (x{count})" if count > 1 else ""))) + "\n"


def _yaml(*items: Mapping[str, object]) -> str:
    return as_yaml(item for item in items if any(value is not None for value in item.values()))


def _name(item: JsonObject) -> str:
    return text(dig(item, "metadata", "name"))
