"""Objects as JSON for programs and for a terminal alike. Pure."""

from __future__ import annotations

import json

from dtj.api.json import JsonObject


def as_json(body: JsonObject, *, indent: int) -> str:
    """The object in ASCII, with a line break at its end. DEL is the one control character that json leaves as it is."""
    return json.dumps(body, indent=indent).replace("\x7f", "\\u007f") + "\n"
