"""What a release needs next to the builds. `check TAG`: all files name the tag's version. `chart`: puts the released
images into the chart's values, by digest. `registry`: sets the registry and owner that `dtj init` names. Standard
library only.

    python3 scripts/release.py check v0.2.0
    python3 scripts/release.py registry ghcr.io/OWNER
    python3 scripts/release.py chart --operator REPOSITORY@sha256:... --trainer REPOSITORY@sha256:...
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PLACES = {
    "pyproject.toml": r'^local = \["dtj-trainer\[.*\]~=(.*)"\]$',
    "operator/dtj/__init__.py": r'^__version__ = "(.*)"$',
    "trainer-image/pyproject.toml": r'^  "dtj-launch~=(.*)",$',
    "trainer-image/dtj_launch/__init__.py": r'^__version__ = "(.*)"$',
    "trainer-image/dtj_trainer/version.py": r'^__version__ = "(.*)"$',
    "charts/dtj/Chart.yaml": r'^(?:version: |appVersion: ")([^"\n]*)"?$',
    "Dockerfile": r"^ARG VERSION=(.*)$",
    "trainer-image/Dockerfile": r"^ARG VERSION=(.*)$",
}
"""Where the version stands: file -> pattern, of which each match must be the version."""

NAMES = "operator/dtj/api/names.py"


class ReleaseError(Exception):
    """The tree is not ready; the message names the file and the remedy."""


def check(tag: str, root: Path = ROOT) -> None:
    """Raises ReleaseError if a file names another version than the tag does."""
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        raise ReleaseError(f"{tag}: no tag of a release; name it like v0.2.0")
    for name, pattern in PLACES.items():
        found = re.findall(pattern, (root / name).read_text(), re.MULTILINE)
        if not found or set(found) != {tag[1:]}:
            raise ReleaseError(f"{name}: names version {', '.join(found) or 'nowhere'}, and the tag is {tag}; set it")
    if not re.search(
        rf"^## {re.escape(tag[1:])} - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        raise ReleaseError(f"CHANGELOG.md: no section `## {tag[1:]} - YYYY-MM-DD`; date what is unreleased")


def repository_of(values: str, section: str) -> str:
    """The repository that values.yaml names in a section. Raises ReleaseError."""
    found = re.search(rf"^{section}:\n(?:  .*\n)*?  repository: (.*)$", values, re.MULTILINE)
    if found is None:
        raise ReleaseError(f"values.yaml: {section} names no repository")
    return found[1]


def with_images(values: str, *, operator: str, trainer: str) -> str:
    """The text of values.yaml with these images, each `repository@sha256:...`. Raises ReleaseError."""
    for section, image in (("image", operator), ("trainerImage", trainer)):
        repository, _, digest = image.partition("@")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise ReleaseError(f"{image}: no digest; give REPOSITORY@sha256:...")
        before, head, rest = values.partition(f"\n{section}:\n")
        if not head and values.startswith(f"{section}:\n"):
            before, head, rest = "", f"{section}:\n", values.removeprefix(f"{section}:\n")
        rest = re.sub(r"^  repository: .*$", f"  repository: {repository}", rest, count=1, flags=re.MULTILINE)
        rest = re.sub(r'^  digest: ""$', f'  digest: "{digest}"', rest, count=1, flags=re.MULTILINE)
        values = before + head + rest
    return values


def with_registry(text: str, registry: str) -> str:
    """The text of names.py with this registry and owner. Raises ReleaseError."""
    if not re.fullmatch(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+", registry):
        raise ReleaseError(f"{registry}: not a registry with an owner; give one like ghcr.io/OWNER, in lower case")
    pattern = r'^IMAGE_REGISTRY: Final = ".*"$'
    changed, count = re.subn(pattern, f'IMAGE_REGISTRY: Final = "{registry}"', text, flags=re.MULTILINE)
    if count != 1:
        raise ReleaseError(f"{NAMES}: IMAGE_REGISTRY is not there once")
    return changed


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 with one line of why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("tag")
    commands.add_parser("registry").add_argument("registry")
    chart = commands.add_parser("chart")
    chart.add_argument("--operator", required=True)
    chart.add_argument("--trainer", required=True)
    given = parser.parse_args(argv)
    try:
        if given.command == "check":
            check(given.tag)
        elif given.command == "registry":
            path = ROOT / NAMES
            path.write_text(with_registry(path.read_text(), given.registry))
        else:
            path = ROOT / "charts" / "dtj" / "values.yaml"
            path.write_text(with_images(path.read_text(), operator=given.operator, trainer=given.trainer))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
