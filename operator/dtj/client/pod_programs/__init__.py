"""Programs that containers run by ``python3 -c``, in the image of a job: Python 3.8 and the standard library only."""

from __future__ import annotations

from importlib import resources
from typing import Final


def _source(name: str) -> str:
    return (resources.files(__name__) / f"{name}.py").read_text(encoding="utf-8")


UNPACK_CODE: Final = _source("unpack_code")
"""Arguments: archive, directory, digest of the archive, and what to do if the archive is not there."""
