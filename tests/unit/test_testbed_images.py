"""What goes into an image decides its name; what does not, does not."""

from pathlib import Path

import pytest

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
