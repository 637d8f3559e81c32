"""What goes into an image decides its name; what does not, does not."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from testbed import oci
from testbed.images import Recipe

pytestmark = pytest.mark.unit

DOCKERFILE = """\
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
ARG PIP_INDEX_URL
COPY --chown=1:1 setup.toml \\
     *.lock /src/
COPY code /src/code
FROM ${BASE}
COPY --from=build /opt /elsewhere/opt
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A folder from which an image could be built."""
    (tmp_path / "code" / "__pycache__").mkdir(parents=True)
    for name in ("setup.toml", "one.lock", "code/main.py", "code/__pycache__/main.pyc", "notes.md"):
        (tmp_path / name).write_text("as it was")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    return tmp_path


def recipe(context: Path, **arguments: str) -> Recipe:
    """The recipe of an image called `thing`."""
    return Recipe(name="thing", dockerfile=context / "Dockerfile", context=context, arguments=arguments)


@pytest.mark.parametrize("changed", ["setup.toml", "one.lock", "code/main.py", "Dockerfile"])
def test_a_change_in_what_is_copied_gives_the_image_another_name(context: Path, changed: str) -> None:
    before = recipe(context).image
    with (context / changed).open("a") as file:
        file.write("\n# changed")
    assert recipe(context).image != before


def test_a_build_argument_gives_the_image_another_name(context: Path) -> None:
    assert recipe(context, GPU="1").image != recipe(context).image


@pytest.mark.parametrize("changed", ["notes.md", "code/__pycache__/main.pyc"])
def test_a_change_in_what_is_not_copied_does_not(context: Path, changed: str) -> None:
    before = recipe(context).image
    (context / changed).write_text("changed")
    assert recipe(context).image == before


def test_only_arguments_that_the_dockerfile_declares_are_given_to_it(context: Path) -> None:
    assert recipe(context).declares("BASE")
    assert recipe(context).declares("PIP_INDEX_URL")
    assert not recipe(context).declares("PIP_EXTRA_INDEX_URL")


def docker_archive(folder: Path, *layers: bytes) -> Path:
    """An image with these layers, as buildah and `docker save` write it."""
    path = folder / "docker.tar"
    files = {f"{number}/layer.tar": layer for number, layer in enumerate(layers)}
    listed = [{"Config": "config.json", "RepoTags": ["localhost/thing:1"], "Layers": list(files)}]
    with tarfile.open(path, "w") as archive:
        for name, content in {**files, "config.json": b"{}", "manifest.json": json.dumps(listed).encode()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_an_oci_archive_has_the_layers_of_the_image_under_their_digests(tmp_path: Path) -> None:
    layers = (b"one", b"two", b"one", gzip.compress(b"three"))
    digest = oci.write(docker_archive(tmp_path, *layers), tmp_path / "oci.tar", name="registry.example/thing:1.0")
    with tarfile.open(tmp_path / "oci.tar") as archive:
        names = archive.getnames()
        content = {name: file.read() for name in names if (file := archive.extractfile(name)) is not None}
    assert len(names) == len(set(names))
    (entry,) = json.loads(content["index.json"])["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1.0"
    blobs = {f"sha256:{Path(name).name}": blob for name, blob in content.items() if name.startswith("blobs/sha256/")}
    assert {f"sha256:{hashlib.sha256(blob).hexdigest()}" for blob in blobs.values()} == set(blobs)
    manifest = json.loads(blobs[digest])
    assert [blobs[layer["digest"]] for layer in manifest["layers"]] == list(layers)
    assert [layer["mediaType"].endswith("+gzip") for layer in manifest["layers"]] == [False, False, False, True]
    assert all(
        len(blobs[found["digest"]]) == found["size"] for found in (entry, manifest["config"], *manifest["layers"])
    )


def test_the_oci_archive_of_an_image_is_the_same_each_time(tmp_path: Path) -> None:
    image = docker_archive(tmp_path, b"one")
    for name in ("a.tar", "b.tar"):
        oci.write(image, tmp_path / name, name="registry.example/thing:1.0")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
