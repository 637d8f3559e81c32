"""A release: versions that agree, images by digest in the chart, and workflows that run what was reviewed."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from dtj import __version__

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DIGEST = f"sha256:{'a' * 64}"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _script()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that name the version, with a CHANGELOG whose section is dated."""
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} - 2026-12-01\n")
    return tmp_path


def test_a_tag_of_the_version_that_all_files_name_can_be_released(tree: Path) -> None:
    release.check(f"v{__version__}", tree)


@pytest.mark.parametrize("name", release.PLACES)
def test_a_file_of_another_version_stops_the_release_and_is_named(tree: Path, name: str) -> None:
    (tree / name).write_text((tree / name).read_text().replace(__version__, "9.9.9"))
    with pytest.raises(
        release.ReleaseError, match=rf"^{name}: names version .*9\.9\.9.*the tag is v{__version__}; set it$"
    ):
        release.check(f"v{__version__}", tree)


@pytest.mark.parametrize("tag", ["main", "v1", "1.2.3", "v1.2.3-rc1"])
def test_a_tag_that_is_none_of_a_release_is_refused(tree: Path, tag: str) -> None:
    with pytest.raises(release.ReleaseError, match="no tag of a release"):
        release.check(tag, tree)


def test_what_is_unreleased_in_the_changelog_stops_the_release(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(f"## {__version__} - unreleased\n")
    with pytest.raises(release.ReleaseError, match=r"^CHANGELOG\.md: no section"):
        release.check(f"v{__version__}", tree)


def test_a_released_chart_names_both_images_by_digest_and_is_otherwise_the_same() -> None:
    before = (ROOT / "charts" / "dtj" / "values.yaml").read_text()
    values = release.with_images(
        before, operator=f"ghcr.io/a/dtj-operator@{DIGEST}", trainer=f"ghcr.io/a/dtj-trainer@{DIGEST}"
    )
    read, other = yaml.safe_load(values), yaml.safe_load(before)
    for section, name in (("image", "dtj-operator"), ("trainerImage", "dtj-trainer")):
        assert (read[section]["repository"], read[section]["digest"]) == (f"ghcr.io/a/{name}", DIGEST)
        read[section] |= {"repository": other[section]["repository"], "digest": ""}
    assert read == other


def test_an_image_without_a_digest_is_not_released() -> None:
    with pytest.raises(release.ReleaseError, match="no digest"):
        release.with_images("image:\n", operator="ghcr.io/a/dtj-operator:0.1.0", trainer="")


def test_default_images_are_of_a_registry_that_nobody_can_own() -> None:
    values = yaml.safe_load((ROOT / "charts" / "dtj" / "values.yaml").read_text())
    assert {values[name]["repository"].partition("/")[0] for name in ("image", "trainerImage")} == {"registry.example"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_actions_of_one_commit_and_keeps_no_credentials(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"uses: (\S+)(.*)", text)
    for action, comment in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), f"{action} is not pinned by commit"
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action} does not say which release it is"
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_puts_no_expression_into_a_shell(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    for job in jobs.values():
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")
