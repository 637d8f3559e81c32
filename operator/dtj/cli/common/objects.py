"""Objects of a cluster as kubectl shows them: by name, as JSON, as YAML. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dtj.api import names
from dtj.api.printable import one_line

if TYPE_CHECKING:
    from dtj.api.json import JsonObject


KIND: Final = f"{names.SINGULAR}.{names.GROUP}"


def named(name: str) -> str:
    """How kubectl names a job: ``distributedtrainingjob.training.dtj.dev/digits``."""
    return f"{KIND}/{name}"


def dumped(objects: Sequence[JsonObject], form: str) -> str:
    """The objects as a List, in ``json`` or ``yaml``, or a line each with its ``name``; ends with a line break.

    managedFields are left out, as kubectl leaves them out.
    """
    import yaml

    from dtj.api.json import dig, text

    if form == "name":
        return "".join(f"{named(one_line(text(dig(body, 'metadata', 'name'))))}\n" for body in objects)
    whole: JsonObject = {
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": list(map(_plain, objects)),
    }
    if form == "yaml":
        return yaml.safe_dump(whole, sort_keys=False)
    return as_json(whole, indent=4)


def _plain(body: JsonObject) -> JsonObject:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return body
    return {**body, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def as_json(body: JsonObject, *, indent: int) -> str:
    """The object in ASCII, with a line break at its end. DEL is the one control character that json leaves as it is."""
    return json.dumps(body, indent=indent).replace("\x7f", "\\u007f") + "\n"
