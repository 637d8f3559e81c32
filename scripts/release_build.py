"""Builds what a release consists of into a folder, and lists it with checksums: `make release`.

    python scripts/release_build.py [--output-dir dist] [--images] [--repository URL]

Wheels and sdists of the three distributions, the chart as a package, an SBOM (CycloneDX) for each image, from the
lock files that it installs from, and the section of the changelog. The same tree gives the same bytes. With `--images`,
the images for nodes without accelerators too, as OCI archives, and the chart names them by digest. With `--repository`,
whose releases they will be files of, the archives and the manifest by which krew installs `kubectl dtj`, and the bundle
by which OLM installs the operator, for which helm must be installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import krew
import olm
import release

ROOT = Path(__file__).resolve().parents[1]

DISTRIBUTIONS = {"dtj-cli": ".", "dtj-trainer": "trainer-image", "dtj-launch": "trainer-image/dtj_launch"}
"""The folder of each distribution."""

_OF_ALL_TRAINERS = ("trainer-image/requirements-stores.lock", "trainer-image/requirements-tensorboard.lock")

LOCKS = {
    "dtj-operator": ("requirements/operator.lock",),
    "dtj-trainer": ("trainer-image/requirements.lock", *_OF_ALL_TRAINERS),
    "dtj-trainer-gpu": ("trainer-image/requirements-gpu.lock", *_OF_ALL_TRAINERS),
    "dtj-trainer-tpu": ("trainer-image/requirements-tpu.lock", *_OF_ALL_TRAINERS),
}
"""What each image installs from."""

IMAGES = {"operator": "image", "trainer": "trainerImage"}
"""Images that are built here -> where the values of the chart name them."""

CHECKSUMS = "SHA256SUMS"


class BuildError(Exception):
    """A part cannot be built; the message says why."""


def build(
    output: Path,
    *,
    root: Path = ROOT,
    python: str = sys.executable,
    helm: str = "helm",
    images: bool = False,
    repository: str = "",
) -> None:
    """Replaces the folder by the files of a release, with `SHA256SUMS` over all of them.

    Raises BuildError and ReleaseError.
    """
    version = version_of(root)
    if output.exists() and any(output.iterdir()) and not (output / CHECKSUMS).exists():
        raise BuildError(f"{output}: is not empty and holds no release; name another folder with --output-dir")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    for folder in DISTRIBUTIONS.values():
        _build_distribution(root / folder, output, python)
    (output / ".gitignore").unlink(missing_ok=True)
    if repository:
        (wheel,) = output.glob("dtj_cli-*.whl")
        krew.build(output, wheel=wheel, version=version, repository=repository)
    package = build_for_clusters(output, root=root, images=images)
    if repository:
        olm.build(package, helm=helm, repository=repository, root=root)
    for image, locks in LOCKS.items():
        document = bill_of_materials(image, version, *((root / lock).read_text() for lock in locks))
        (output / f"{image}-{version}.cdx.json").write_text(json.dumps(document, indent=1) + "\n")
    (output / "RELEASE-NOTES.md").write_text(release.notes(version, (root / "CHANGELOG.md").read_text()))
    files = sorted(output.iterdir())
    lines = [f"{_checksum(path)}  {path.name}\n" for path in files]
    (output / CHECKSUMS).write_text("".join(lines))


def build_for_clusters(output: Path, *, root: Path = ROOT, images: bool) -> Path:
    """Writes the package of the chart, and with `images` an archive of each image that it then names by digest.

    Returns the path of the package. Raises BuildError and ReleaseError.
    """
    version, chart = version_of(root), root / "charts" / "dtj"
    digests = _save_images(output, version, root) if images else {}
    package = output / f"dtj-{version}.tgz"
    package.write_bytes(package_chart(chart, with_digests(chart, digests)))
    return package


def version_of(root: Path) -> str:
    """The version of the tree. Raises BuildError."""
    found = re.search(r'^__version__ = "(.*)"$', (root / "operator/dtj/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError("operator/dtj/__init__.py: names no version")
    return found[1]


def _build_distribution(folder: Path, output: Path, python: str) -> None:
    command = [python, "-m", "uv", "build", "--quiet", "--no-build-isolation", "--python", python]
    done = subprocess.run(
        [*command, "--out-dir", str(output), str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"{folder}: {done.stderr.strip()}")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _save_images(output: Path, version: str, root: Path) -> dict[str, str]:
    """Writes an OCI archive of each image; returns their digests. Raises BuildError."""
    command = [str(root / "scripts" / "images"), *IMAGES, "--save", str(output.resolve())]
    if subprocess.run(command, check=False).returncode:
        raise BuildError("the images were not built; leave them out with `make release IMAGES=0`")
    return {image: digest_of(archive_of(image, output, version)) for image in IMAGES}


def archive_of(image: str, output: Path, version: str) -> Path:
    """Where a release has an image."""
    return output / f"dtj-{image}-{version}.oci.tar"


def digest_of(archive: Path) -> str:
    """The digest of the only image in an OCI archive."""
    with tarfile.open(archive) as opened:
        index = opened.extractfile("index.json")
        assert index is not None
        (entry,) = json.load(index)["manifests"]
    return str(entry["digest"])


def with_digests(chart: Path, digests: Mapping[str, str]) -> bytes:
    """The values of a chart, which name the images by these digests, if there are any. Raises ReleaseError."""
    values = (chart / "values.yaml").read_text()
    if digests:
        named = {
            image: f"{release.repository_of(values, section)}@{digests[image]}" for image, section in IMAGES.items()
        }
        values = release.with_images(values, **named)
    return values.encode()


def package_chart(chart: Path, values: bytes) -> bytes:
    """The archive that `helm package` would make, with these values; files that .helmignore names are left out."""
    ignored = [line for line in (chart / ".helmignore").read_text().splitlines() if line]
    files = {}
    for path in (path for path in chart.rglob("*") if path.is_file()):
        relative = path.relative_to(chart)
        if not any(Path(part).match(pattern.rstrip("/")) for part in relative.parts for pattern in ignored):
            files[f"{chart.name}/{relative}"] = values if relative == Path("values.yaml") else path.read_bytes()
    return release.pack(files)


def bill_of_materials(image: str, version: str, *locks: str) -> dict[str, Any]:
    """The Python packages of an image as CycloneDX 1.6, from its lock files."""
    components = [
        {
            "type": "library",
            "name": name,
            "version": pinned,
            "purl": f"pkg:pypi/{name}@{pinned}",
            "bom-ref": f"pkg:pypi/{name}@{pinned}",
        }
        for name, pinned in dict.fromkeys(package for lock in locks for package in _locked(lock))
    ]
    subject = {"type": "container", "name": image, "version": version, "bom-ref": image}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": [{"ref": image, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _locked(lock: str) -> Iterator[tuple[str, str]]:
    """Name and version of each package of a lock file, names as PyPI normalizes them."""
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.MULTILINE):
        yield re.sub(r"[-_.]+", "-", name).lower(), version


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 with one line of why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output-dir", type=Path, default=ROOT / "dist", metavar="DIR", help="(default: dist)")
    parser.add_argument("--images", action="store_true", help="build the images too, if Docker or buildah is installed")
    parser.add_argument(
        "--repository", default="", metavar="URL", help="build for krew and OLM too; needs PyPI and helm"
    )
    given = parser.parse_args(argv)
    images = given.images and any(map(shutil.which, ("docker", "buildah")))
    if given.images and not images:
        print("release: neither Docker nor buildah is installed: no images are built", file=sys.stderr)
    try:
        build(given.output_dir, images=images, repository=given.repository)
    except (BuildError, release.ReleaseError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in sorted(given.output_dir.iterdir()):
        print(f"{path.stat().st_size / 1e3:8.0f} kB  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
