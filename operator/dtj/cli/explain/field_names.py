"""The names of all fields, from a generated file: a Tab must not wait for the types that the schema comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("field_names.json")
"""Objects in objects; ``scripts/generate_crds.py`` writes it. A field without fields below is an empty object."""

ANY_KEY: Final = "*"
"""In place of the name, what is below each value of a map."""

_ROOT_OF_SHORT_PATHS: Final = "spec"


def fields_from(begun: str) -> list[str]:
    """The paths that begin so, one level below the last dot: for a Tab."""
    level = begun.rpartition(".")[0]
    fields = json.loads(FILE.read_text(encoding="utf-8"))
    steps = [step for step in level.replace("[]", "").split(".") if step]
    if steps and steps[0] not in fields:
        fields = fields[_ROOT_OF_SHORT_PATHS]
    for step in steps:
        fields = fields.get(step) or fields.get(ANY_KEY) or {}
    prefix = f"{level}." if level else ""
    names = fields.get(ANY_KEY, fields)
    return [f"{prefix}{name}" for name in names if f"{prefix}{name}".startswith(begun)]
