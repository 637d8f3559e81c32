"""What the schema says of a field, as ``kubectl explain`` would show it. Pure."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator

from dtj.api import names
from dtj.api.generated_schema import generated_job_schema
from dtj.api.json import JsonObject, dig
from dtj.api.profiles import SHIPPED_PROFILES
from dtj.cli.explain.field_names import ANY_KEY

_WIDEST = 100

_PROFILE = "spec.accelerator.profile"
"""Its values are names that an operator knows, so the schema cannot list them."""


class NoSuchField(Exception):
    """A path that leads nowhere; the message says where it ends, in one line."""


def field_lines(path: str, *, width: int) -> Iterator[str]:
    """Type, default, limits and meaning of the field at ``path``, such as ``spec.runPolicy.suspend``, and the fields
    below it. Raises NoSuchField."""
    schema, name = _find(path)
    yield f"KIND:     {names.KIND}"
    yield f"VERSION:  {names.API_VERSION}"
    yield ""
    yield f"FIELD:    {name} <{_type(schema)}>"
    yield from (f"{title + ':':9} {value}" for title, value in _facts(schema))
    if name == _PROFILE:
        yield "SHIPPED:"
        shipped = ", ".join(SHIPPED_PROFILES)
        yield from textwrap.wrap(shipped, min(width, _WIDEST), initial_indent="    ", subsequent_indent="    ")
    description = str(schema.get("description", ""))
    if description:
        yield ""
        yield "DESCRIPTION:"
        yield from textwrap.wrap(description, min(width, _WIDEST), initial_indent="    ", subsequent_indent="    ")
    below = dict(_below(schema))
    if below:
        yield ""
        yield "FIELDS:"
        longest = max(map(len, below))
        for child, inner in below.items():
            facts = "  ".join(f"{title.lower()} {value}" for title, value in _facts(inner))
            yield f"    {child.ljust(longest)}  <{_type(inner)}>  {facts}".rstrip()


def names_below(schema: JsonObject) -> JsonObject:
    """The names of all fields of a schema, as :mod:`~dtj.cli.explain.field_names` reads them."""
    below: JsonObject = {name: names_below(inner) for name, inner in _below(schema)}
    return {ANY_KEY: below} if isinstance(_one(schema).get("additionalProperties"), dict) and below else below


def _find(path: str) -> tuple[JsonObject, str]:
    """The schema at a path, and the path in full: ``spec.`` may be left out."""
    steps = [step for step in path.replace("[]", "").split(".") if step]
    schema = generated_job_schema()
    if steps and steps[0] not in dict(_below(schema)):
        steps.insert(0, "spec")
    for place, step in enumerate(steps):
        known = dict(_below(schema))
        found = known.get(step) or dig(_one(schema), "additionalProperties")
        if not isinstance(found, dict):
            raise NoSuchField(f'{".".join(steps[:place])} has no field "{step}"{_suggestion(step, known)}')
        schema = found
    return schema, ".".join(steps) or names.KIND


def _suggestion(name: str, known: dict[str, JsonObject]) -> str:
    """The field that may be meant: another one here, or one of this name elsewhere."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    elsewhere = [path for path in _paths(generated_job_schema(), "") if path.rpartition(".")[2] == name]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    return f"; there are {', '.join(known)}" if known else ""


def _paths(schema: JsonObject, prefix: str) -> Iterator[str]:
    """The paths of all fields, those nearest the top first."""
    below = [(f"{prefix}{name}", inner) for name, inner in _below(schema)]
    yield from (path for path, _ in below)
    for path, inner in below:
        yield from _paths(inner, f"{path}.*." if "additionalProperties" in inner else f"{path}.")


def _one(schema: JsonObject) -> JsonObject:
    """Of a list, what each item is."""
    items = schema.get("items")
    return items if isinstance(items, dict) else schema


def _below(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The fields of an object, of a list's items, or of a map's values."""
    schema = _one(schema)
    found = dig(schema, "properties") or dig(schema, "additionalProperties", "properties")
    for name, inner in found.items() if isinstance(found, dict) else ():
        if isinstance(inner, dict):
            yield name, inner


def _type(schema: JsonObject) -> str:
    if isinstance(schema.get("items"), dict):
        return f"[]{_type(_one(schema))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map[string]{dig(schema, 'additionalProperties', 'type') or 'any'}"
    return str(schema.get("type", "any"))


def _facts(schema: JsonObject) -> Iterator[tuple[str, str]]:
    default, allowed = schema.get("default"), schema.get("enum")
    if default not in (None, {}, [], ""):
        yield "DEFAULT", str(default).lower() if isinstance(default, bool) else str(default)
    if isinstance(allowed, list):
        yield "ONE OF", ", ".join(map(str, allowed))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        yield "RANGE", f"{'' if low is None else low}..{'' if high is None else high}"
