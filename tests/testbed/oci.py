"""Images as OCI archives: with a digest that a chart can name before any registry has the image.

buildah and `docker save` write docker archives, which have no digest: what pushes or imports one makes its manifest. An
OCI archive has its manifest, so it has the same digest on a node and, copied without changes, in a registry. The same
image gives the same bytes. Layers stay as they are: those of buildah are not compressed.

Source: https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
INDEX = "application/vnd.oci.image.index.v1+json"
GZIP = b"\x1f\x8b"
CHUNK_BYTES = 2**20

Descriptor = dict[str, str | int]


def write(docker_archive: Path, output: Path, *, name: str) -> str:
    """Write the only image of a docker archive as an OCI archive under `name`, such as `registry/image:tag`.

    Returns the digest of its manifest, `sha256:...`.
    """
    with tarfile.open(docker_archive) as source, tarfile.open(output, "w") as target:
        (listed,) = json.load(_open(source, "manifest.json"))
        copied: set[str] = set()
        config = _copy(source, target, listed["Config"], CONFIG, copied)
        layers = [_copy(source, target, layer, LAYER, copied) for layer in listed["Layers"]]
        manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}).encode()
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        _add(target, _path(digest), manifest)
        # Tools that follow the specification take the tag from the first; containerd takes the name from the other.
        names = {"org.opencontainers.image.ref.name": name.rpartition(":")[2], "io.containerd.image.name": name}
        entry = {"mediaType": MANIFEST, "digest": digest, "size": len(manifest), "annotations": names}
        _add(target, "index.json", json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode())
        _add(target, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    return digest


def _copy(source: tarfile.TarFile, target: tarfile.TarFile, name: str, media_type: str, copied: set[str]) -> Descriptor:
    """Copy a file of an archive as a blob, unless it is there, and describe it."""
    hashed, size, start = hashlib.sha256(), 0, b""
    for chunk in _chunks(_open(source, name)):
        start = start or chunk[: len(GZIP)]
        hashed.update(chunk)
        size += len(chunk)
    digest = f"sha256:{hashed.hexdigest()}"
    if digest not in copied:
        copied.add(digest)
        target.addfile(_entry(_path(digest), size), _open(source, name))
    return {"mediaType": media_type + ("+gzip" if start == GZIP else ""), "digest": digest, "size": size}


def _open(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    content = archive.extractfile(name)
    assert content is not None, f"{name} is no file"
    return content


def _chunks(content: IO[bytes]) -> Iterator[bytes]:
    while chunk := content.read(CHUNK_BYTES):
        yield chunk


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_entry(name, len(content)), io.BytesIO(content))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    """A file without time and owner."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
