"""Manifests as Python users have them: a file, YAML text, or a mapping."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from dtj.api.json import dig
from dtj.client.checks import Checked, Manifest, check, check_documents
from dtj.client.errors import InvalidManifest
from dtj.client.manifest_files import Document, UnreadableFile, parse

Source: TypeAlias = "os.PathLike[str] | str | Mapping[str, object]"
"""A path, a string (YAML where it holds a line break or begins with ``{``, else the name of a file), or a mapping."""

_ORIGIN = "the manifest"
_LOG = logging.getLogger("dtj.client")


def manifests_of(source: Source) -> tuple[Manifest, ...]:
    """The jobs of a manifest, by the rules of ``dtj validate`` but for accelerator profiles, which the cluster's
    operator knows. Raises InvalidManifest."""
    return sound(_checked(source))


def sound(checked: Checked) -> tuple[Manifest, ...]:
    """The manifests, of which none may have a problem. Objects of other kinds are logged. Raises InvalidManifest."""
    for note in checked.notes:
        _LOG.warning("%s", note)
    if checked.problems:
        raise InvalidManifest(checked.problems)
    return checked.manifests


def placed(manifests: Iterable[Manifest], *, namespace: str, asked: str | None) -> tuple[tuple[Manifest, str], ...]:
    """Each manifest with the namespace that it goes to: its own, else ``asked``, else ``namespace``.

    Raises InvalidManifest where one names another namespace than was asked for.
    """
    found = []
    problems = []
    for manifest in manifests:
        own = dig(manifest.document.body, "metadata", "namespace")
        if isinstance(own, str) and own and asked is not None and own != asked:
            problems.append(
                f'{manifest.document.title}: metadata.namespace: is "{own}", but the namespace asked for is "{asked}"; '
                "leave one of them out"
            )
        found.append((manifest, (own if isinstance(own, str) else "") or asked or namespace))
    if problems:
        raise InvalidManifest(tuple(problems))
    return tuple(found)


def _checked(source: Source) -> Checked:
    if isinstance(source, Mapping):
        return check_documents([_document(source)], None)
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return check_documents(_parsed(source), None)
    return check([os.fspath(source)], None)


def _document(source: Mapping[str, object]) -> Document | str:
    try:
        body = json.loads(json.dumps(dict(source), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"{_ORIGIN}: not JSON: {error}"
    return Document(path=None, number=1, alone=True, body=body, origin=_ORIGIN)


def _parsed(source: str) -> Iterable[Document | str]:
    try:
        return parse(source, origin=_ORIGIN)
    except UnreadableFile as error:
        return [str(error)]
