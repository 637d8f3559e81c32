"""What a release needs next to the builds. `check TAG`: all files name the tag's version. `chart`: puts the released
images into the chart's values, by digest, and what names the repository into Chart.yaml and the chart's README.
`registry`: sets the registry and owner that `dtj init` names. Standard library only.

    python3 scripts/release.py check v0.2.0
    python3 scripts/release.py registry ghcr.io/OWNER
    python3 scripts/release.py chart --operator NAME@sha256:... --trainer NAME@sha256:... --repository URL
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
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
INSIGHTS = ".github/security-insights.yml"


class ReleaseError(Exception):
    """The tree is not ready; the message names the file and the remedy."""


def check(tag: str, root: Path = ROOT) -> None:
    """Raises ReleaseError if a file names another version than the tag does, or no repository."""
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
    if "repository.example" in (root / INSIGHTS).read_text():
        raise ReleaseError(f"{INSIGHTS}: names repository.example/OWNER/dtj; write the repository's own address")


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


def check_repository(url: str) -> None:
    """Raises ReleaseError if this is no address of a repository on a code host."""
    if not re.fullmatch(r"https://[A-Za-z0-9.-]+(/[\w.-]+){2,}", url):
        raise ReleaseError(f"{url}: no address of a repository; give one like https://github.com/OWNER/REPOSITORY")


def pack(files: Mapping[str, bytes], *, program: str = "") -> bytes:
    """A tar.gz of these files, without times and users: the same files have the same checksum.

    Args:
        program: the one that can be executed.
    """
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name == program else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def notes(version: str, changelog: str) -> str:
    """The section of a version. Raises ReleaseError."""
    found = re.search(rf"^## {re.escape(version)} - .*?(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md: no section `## {version} - ...`")
    return found[0]


def changes(version: str, changelog: str) -> Iterator[tuple[str, str]]:
    """Kind, in lower case, and text of each entry that the changelog has for a version. Raises ReleaseError."""
    for part in notes(version, changelog).split("\n### ")[1:]:
        kind, _, entries = part.partition("\n")
        for entry in re.split(r"^- ", entries, flags=re.MULTILINE)[1:]:
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", entry.replace("**", ""))
            yield kind.lower(), " ".join(text.split())


def with_origin(chart: str, *, repository: str, operator: str, trainer: str, changelog: str) -> str:
    """The text of Chart.yaml with what Artifact Hub shows of a release: where it comes from, what it runs, what is new.

    Raises ReleaseError.
    """
    check_repository(repository)
    found = re.search(r"^version: (.*)$", chart, re.MULTILINE)
    if found is None or re.search("^home: ", chart, re.MULTILINE) or not chart.endswith("\n"):
        raise ReleaseError("Chart.yaml: names no version, or is the one of a release; take the one of the checkout")
    version, owner = found[1], repository.rpartition("/")[0]
    origin = f"""\
home: {repository}
sources: [{repository}]
icon: {repository}/raw/v{version}/docs/images/icon.svg
maintainers:
- {{name: {owner.rpartition("/")[2]}, url: {owner}}}
"""
    annotations = f"""\
  artifacthub.io/links: |
    - {{name: support, url: {repository}/issues}}
    - {{name: documents, url: {repository}/blob/v{version}/docs/index.md}}
    - {{name: security, url: {repository}/blob/v{version}/SECURITY.md}}
  artifacthub.io/images: |
    - {{name: operator, image: "{operator}", platforms: [linux/amd64]}}
    - {{name: trainer, image: "{trainer}", platforms: [linux/amd64]}}
  artifacthub.io/changes: |
"""
    for kind, text in changes(version, changelog):
        annotations += f"    - {{kind: {kind}, description: {json.dumps(text, ensure_ascii=False)}}}\n"
    chart = re.sub(r"\S+/dtj-trainer:", f"{trainer.partition('@')[0]}:", chart)  # in the examples
    return chart.replace("\nkeywords: ", f"\n{origin}keywords: ", 1) + annotations


def with_addresses(readme: str, *, repository: str, registry: str, version: str) -> str:
    """The text of the chart's README for readers who have no checkout."""
    installed = f"helm install dtj oci://{registry}/charts/dtj --version {version} "
    readme = readme.replace("helm install dtj charts/dtj ", installed)
    return readme.replace("](../../", f"]({repository}/blob/v{version}/")


def release_chart(root: Path, *, operator: str, trainer: str, repository: str) -> None:
    """Writes values.yaml, Chart.yaml and README.md of a release. Raises ReleaseError."""
    folder = root / "charts" / "dtj"
    values = with_images((folder / "values.yaml").read_text(), operator=operator, trainer=trainer)
    before = (folder / "Chart.yaml").read_text()
    changelog = (root / "CHANGELOG.md").read_text()
    chart = with_origin(before, repository=repository, operator=operator, trainer=trainer, changelog=changelog)
    (version,) = re.findall(r"^version: (.*)$", chart, re.MULTILINE)
    readme = with_addresses(
        (folder / "README.md").read_text(),
        repository=repository,
        registry=operator.partition("@")[0].rpartition("/")[0],
        version=version,
    )
    for name, text in (("values.yaml", values), ("Chart.yaml", chart), ("README.md", readme)):
        (folder / name).write_text(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 with one line of why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("tag")
    commands.add_parser("registry").add_argument("registry")
    chart = commands.add_parser("chart")
    chart.add_argument("--operator", required=True)
    chart.add_argument("--trainer", required=True)
    chart.add_argument("--repository", required=True)
    given = parser.parse_args(argv)
    try:
        if given.command == "check":
            check(given.tag)
        elif given.command == "registry":
            path = ROOT / NAMES
            path.write_text(with_registry(path.read_text(), given.registry))
        else:
            release_chart(ROOT, operator=given.operator, trainer=given.trainer, repository=given.repository)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
