"""Builds what krew installs as `kubectl dtj`: an archive for each platform, and the manifest that names them.

    python scripts/krew.py dist/dtj_cli-0.1.0-py3-none-any.whl --repository https://github.com/OWNER/REPOSITORY

krew unpacks an archive and links the program in it onto the PATH; it installs no packages. So an archive holds the
packages of requirements/operator.lock, the compiled ones for each version of Python, and needs the user's Python alone.
`scripts/release_build.py --repository` calls this. The same tree gives the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import release

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = "requirements/operator.lock"

PLATFORMS: Final = {
    "linux-amd64": "x86_64-unknown-linux-gnu",
    "linux-arm64": "aarch64-unknown-linux-gnu",
    "darwin-amd64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""A platform as krew names it, system and architecture -> as uv does."""

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python that an archive has compiled packages for."""

MANIFEST: Final = "dtj.yaml"
"""krew wants it named after the plugin."""

PROGRAM: Final = "kubectl-dtj"
"""In an archive; the manifest names it, too."""

HEAD: Final = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: dtj
spec:
  version: v{version}
  homepage: {repository}
  shortDescription: Run and follow distributed TensorFlow trainings
  description: |
    Submits, watches, scales and explains DistributedTrainingJobs: distributed TensorFlow training on Kubernetes,
    served by the dtj operator. `kubectl dtj status` and `kubectl dtj logs` say why a job does not run, and what to do.
    `kubectl dtj doctor` checks the cluster and the installation.
  caveats: |
    Needs Python {oldest} to {newest} (CPython; on Linux with glibc) on the PATH, and no other package.
    The operator is installed apart, by its Helm chart: {repository}
    To train on this machine with `kubectl dtj run`, name a Python that has the trainer with --trainer-python.
  platforms:
"""

ENTRY: Final = """\
  - selector:
      matchLabels:
        os: {system}
        arch: {architecture}
    uri: {repository}/releases/download/v{version}/{archive}
    sha256: {checksum}
    bin: kubectl-dtj
"""


def build(output: Path, *, wheel: Path, version: str, repository: str, platforms: Sequence[str] = ()) -> None:
    """Writes the archives of these platforms (default: all), and the manifest. They are downloaded from PyPI.

    The platform of this machine must be among them: what dtj never loads is found by loading it. Raises ReleaseError.
    """
    platforms = platforms or tuple(PLATFORMS)
    release.check_repository(repository)
    with tempfile.TemporaryDirectory() as scratch:
        lib = Path(scratch)
        shutil.unpack_archive(wheel, lib / "any", "zip")
        there: set[str] = set()
        for name in platforms:
            for python in PYTHONS:
                there |= _add_packages(lib, name, python, there)
        _slim(lib)
        for name in platforms:
            (output / archive_name(name, version)).write_bytes(_pack(lib, name))
    checksums = {
        name: hashlib.sha256((output / archive_name(name, version)).read_bytes()).hexdigest() for name in platforms
    }
    (output / MANIFEST).write_text(manifest(checksums, version=version, repository=repository))


def archive_name(name: str, version: str) -> str:
    """The file of a platform."""
    return f"kubectl-dtj-{version}-{name}.tar.gz"


def manifest(checksums: dict[str, str], *, version: str, repository: str) -> str:
    """The manifest of a plugin, for these archives: platform -> SHA-256."""
    entries = (
        ENTRY.format(
            system=name.partition("-")[0],
            architecture=name.partition("-")[2],
            archive=archive_name(name, version),
            checksum=checksum,
            version=version,
            repository=repository,
        )
        for name, checksum in checksums.items()
    )
    head = HEAD.format(version=version, repository=repository, oldest=PYTHONS[0], newest=PYTHONS[-1])
    return head + "".join(entries)


def this_platform() -> str:
    """The platform of this machine. Raises ReleaseError if there is no archive for it."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = f"{platform.system().lower()}-{architecture}"
    if name not in PLATFORMS:
        raise release.ReleaseError(f"{name}: archives for krew are built on one of {', '.join(PLATFORMS)}")
    return name


def _tag(python: str) -> str:
    return f"cp{python.replace('.', '')}"


def _add_packages(lib: Path, name: str, python: str, there: set[str]) -> set[str]:
    """Installs what is locked, without the packages that are `there`: compiled ones to the folder of platform and
    Python, and those that are pure Python, which it returns, to `any`. Raises ReleaseError."""
    blocks = re.split(r"^(?=[a-z0-9])", (ROOT / LOCK).read_text(), flags=re.MULTILINE)
    pure = set()
    with tempfile.TemporaryDirectory(dir=lib) as scratch:
        target, lock = Path(scratch) / "target", Path(scratch) / "lock"
        lock.write_text("".join(block for block in blocks if block.partition("==")[0] not in there))
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--python", sys.executable, "--python-platform", PLATFORMS[name]]
        command += ["--python-version", python, "--target", str(target), "--requirement", str(lock)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise release.ReleaseError(f"{LOCK} on {name} with Python {python}: {done.stderr.strip()}")
        for information in sorted(target.glob("*.dist-info")):
            place = lib / name / _tag(python)
            if re.search(r"^Root-Is-Purelib: true$", (information / "WHEEL").read_text(), re.MULTILINE):
                place = lib / "any"
                pure.add(information.name.partition("-")[0].replace("_", "-").lower())
            for path in _files(information):
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target / path, place / path)
    return pure


def _files(information: Path) -> Iterator[Path]:
    """The files of an installed distribution, relative to where it is installed; without programs and receipts."""
    with (information / "RECORD").open(newline="") as record:
        for name, *_ in csv.reader(record):
            path = Path(name)
            receipt = path.parent.name == information.name and path.name in ("RECORD", "INSTALLER", "REQUESTED")
            if path.parts[0] not in ("..", "bin") and not receipt:
                yield path


def _slim(lib: Path) -> None:
    """Removes what the Kubernetes client brings and dtj never loads. Raises ReleaseError."""
    native = lib / this_platform() / _tag(".".join(map(str, sys.version_info[:2])))
    if not native.is_dir():
        raise release.ReleaseError(
            f"archives for krew are built with {this_platform()} and Python {PYTHONS[0]} or newer"
        )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(lib / "any"), str(native)))}
    command = [sys.executable, "-B", "-s", str(ROOT / "scripts" / "slim_client.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise release.ReleaseError(f"scripts/slim_client.py: {done.stderr.strip()}")


def _pack(lib: Path, name: str) -> bytes:
    files = {PROGRAM: ROOT / "scripts" / "kubectl_dtj.py", "LICENSE": ROOT / "LICENSE"}
    for folder in (lib / "any", *(lib / name).iterdir()):
        files |= {f"lib/{folder.name}/{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
    return release.pack({inside: path.read_bytes() for inside, path in files.items()}, program=PROGRAM)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 with one line of why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="the wheel of dtj-cli; the archives are written beside it")
    parser.add_argument("--repository", required=True, metavar="URL", help="whose releases the archives are files of")
    given = parser.parse_args(argv)
    version = given.wheel.name.split("-")[1]
    try:
        build(given.wheel.parent, wheel=given.wheel, version=version, repository=given.repository)
    except release.ReleaseError as error:
        print(f"krew: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
