"""Builds the project's images from their real Dockerfiles: by Docker where its engine runs, else by buildah as root.

Where no registry can be reached, Debian's own packages stand in for the base: a debootstrap of the same release,
slimmed as Debian's slim images are, is given to a Dockerfile as its BASE. Archives are cached by the content of all
that goes into an image, so nothing is built twice.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from testbed import base_image, packages
from testbed.buildah import Buildah, run
from testbed.cache import cache_root, locked, report
from testbed.cluster import Image

ROOT = Path(__file__).parent.parent.parent
BASE_ARGUMENT = "BASE"
KEPT_ARCHIVES = 3

# The first of these that is set names the certificates which this machine needs to reach package indexes.
CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
# Given on to a Dockerfile that declares them.
FORWARDED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What one image is built from."""

    name: str
    dockerfile: Path
    context: Path = ROOT
    arguments: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """A hash over all that goes into the image: Dockerfile, arguments, base and every file that it copies."""
        digest = hashlib.sha256(json.dumps([dict(self.arguments), base_image.key()]).encode())
        for path in (self.dockerfile, *self._copied_files()):
            content = path.read_bytes()
            mode = path.stat().st_mode & 0o777
            digest.update(f"\n{path.relative_to(self.context)} {mode} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:12]

    @property
    def image(self) -> str:
        """The image's name, which says what is in it."""
        return f"localhost/dtj-{self.name}:{self.key}"

    def declares(self, argument: str) -> bool:
        """Whether the Dockerfile takes a build argument."""
        return re.search(rf"^ARG {argument}\b", self.dockerfile.read_text(), re.MULTILINE) is not None

    def _copied_files(self) -> Iterator[Path]:
        text = self.dockerfile.read_text().replace("\\\n", " ")
        for line in re.findall(r"^COPY +(.+)$", text, re.MULTILINE):
            words = [
                word for word in line.split() if not word.startswith("--chown=") and not word.startswith("--chmod=")
            ]
            if not words[0].startswith("--from="):
                for pattern in words[:-1]:
                    for source in sorted(self.context.glob(pattern.rstrip("/"))):
                        yield from _files(source)


OPERATOR = Recipe(name="operator", dockerfile=ROOT / "Dockerfile")
TRAINER = Recipe(name="trainer", dockerfile=ROOT / "trainer-image" / "Dockerfile")
RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in (OPERATOR, TRAINER)}


def docker_works() -> bool:
    """Whether there is a Docker engine, and not only its command."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def build(recipe: Recipe, *, docker: bool) -> Image:
    """The image of a recipe: in Docker if `docker`, else an archive in the cache.

    Raises `Unavailable` where it cannot be built, with the last words of the build.
    """
    if docker:
        arguments = _arguments(recipe, {})
        run("docker", "build", *arguments, f"--file={recipe.dockerfile}", f"--tag={recipe.image}", str(recipe.context))
        return Image(name=recipe.image)
    packages.ensure(packages.IMAGES)
    archive = cache_root() / "images" / f"{recipe.name}-{recipe.key}.tar"
    with locked(cache_root() / "images.lock", on_wait=lambda: report("waiting for another process that builds images")):
        if not archive.exists():
            _build_archive(recipe, archive)
    return Image(name=recipe.image, archive=archive)


def size_of(image: Image) -> int:
    """The unpacked size of an image in bytes: the sum of its layers."""
    if image.archive is None:
        return int(run("docker", "image", "inspect", "--format={{.Size}}", image.name))
    with tarfile.open(image.archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        layers = json.load(manifest)[0]["Layers"]
        return sum(tar.getmember(layer).size for layer in layers)


@contextmanager
def docker_archive(image: Image) -> Iterator[Path]:
    """The image as a docker archive, which exists as long as the context does if the image is in Docker."""
    if image.archive is not None:
        yield image.archive
        return
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "image.tar"
        run("docker", "save", f"--output={archive}", image.name)
        yield archive


def _build_archive(recipe: Recipe, archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache_root(), prefix="building-") as scratch:
        buildah = Buildah(Path(scratch))
        base = base_image.ensure(buildah, report=report)
        report(f"building {recipe.image} from {recipe.dockerfile.relative_to(recipe.context)}")
        arguments = _arguments(recipe, {BASE_ARGUMENT: base})
        options = ["--layers", f"--file={recipe.dockerfile}", f"--tag={recipe.image}", *_mounts()]
        buildah.run("bud", *arguments, *options, str(recipe.context))
        packed = Path(scratch) / "image.tar"
        buildah.run("push", recipe.image, f"docker-archive:{packed}:{recipe.image}")
        archive.parent.mkdir(exist_ok=True)
        packed.replace(archive)
    _forget_old(recipe, archive.parent)


def _forget_old(recipe: Recipe, folder: Path) -> None:
    """Keep the newest archives of an image: they are large, and others may be loading one of them."""
    archives = sorted(folder.glob(f"{recipe.name}-*.tar"), key=lambda archive: archive.stat().st_mtime)
    for archive in archives[:-KEPT_ARCHIVES]:
        archive.unlink()


def _arguments(recipe: Recipe, own: Mapping[str, str]) -> list[str]:
    forwarded = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    arguments = {name: value for name, value in {**forwarded, **own}.items() if recipe.declares(name)}
    return [f"--build-arg={name}={value}" for name, value in {**arguments, **recipe.arguments}.items()]


def _mounts() -> list[str]:
    """What this machine needs to reach package indexes, mounted into the build where the Dockerfiles look for it."""
    certificates = next((os.environ[name] for name in CERTIFICATES if os.environ.get(name)), None)
    configuration = os.environ.get("PIP_CONFIG_FILE")
    mounts = {"/run/ca.crt": certificates, "/etc/pip.conf": configuration}
    return [f"--volume={source}:{target}:ro" for target, source in mounts.items() if source and Path(source).is_file()]


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    for path in sorted(source.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path
