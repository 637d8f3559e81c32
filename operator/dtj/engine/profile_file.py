"""The file of accelerator profiles of an operator; commands that explain or check jobs read it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml
from pydantic import TypeAdapter, ValidationError

from dtj.api.profiles import SHIPPED_PROFILES, Profile

VALUE: Final = "acceleratorProfiles"
"""What the profiles are called in the values of the chart."""


class ProfilesError(Exception):
    """A file that cannot be used; the message says which, where in it, and why, in one line."""


def profiles(path: Path | None) -> dict[str, Profile]:
    """All profiles by name: the shipped ones, and those of a file, which win.

    The file holds a list, or values of the chart in which ``acceleratorProfiles`` is one. Raises ProfilesError.
    """
    try:
        own = read_profiles(path.read_text(encoding="utf-8"), where=str(path)) if path is not None else []
    except OSError as error:
        raise ProfilesError(f"accelerator profiles {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfilesError(f"accelerator profiles {path}: not YAML: {error}") from error
    return {**SHIPPED_PROFILES, **{profile.name: profile for profile in own}}


def read_profiles(content: str, *, where: str) -> list[Profile]:
    """The profiles in the words of a file, in order; ``where`` is what errors call it. Raises ProfilesError."""
    try:
        found = yaml.safe_load(content)
        listed = found[VALUE] if isinstance(found, dict) and VALUE in found else found
        return TypeAdapter(list[Profile]).validate_python(listed)
    except yaml.YAMLError as error:
        raise ProfilesError(f"accelerator profiles {where}: not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise ProfilesError(f"accelerator profiles {where}: profiles{place}: {first['msg']}") from error
