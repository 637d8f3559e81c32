"""The structural schema of a job, from a generated file: a command must not wait until :mod:`dtj.api.crd` builds it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Final

from dtj.api.json import JsonObject

FILE: Final = Path(__file__).with_name("job_schema.json")
"""``scripts/generate_crds.py`` writes it."""


@cache
def generated_job_schema() -> JsonObject:
    """What :func:`dtj.api.crd.job_schema` builds. Shared: do not change it."""
    loaded: JsonObject = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded
