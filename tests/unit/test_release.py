"""A release: versions that agree, images by digest in the chart, and workflows that run what was reviewed."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from fnmatch import fnmatch
from pathlib import Path

import krew
import olm
import pytest
import release
import release_build
import yaml

from dtj import __version__
from dtj.api.names import IMAGE_REGISTRY, KIND, VERSION

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that name the version, with a CHANGELOG whose section is dated, in a repository that has an address."""
    for name in release.PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} - 2026-12-01\n")
    (tmp_path / ".github").mkdir()
    insights = (ROOT / release.INSIGHTS).read_text()
    (tmp_path / release.INSIGHTS).write_text(insights.replace("repository.example/OWNER", "code.example/owner"))
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


def test_a_placeholder_for_the_repository_stops_the_release(tree: Path) -> None:
    shutil.copy(ROOT / release.INSIGHTS, tree / release.INSIGHTS)
    with pytest.raises(release.ReleaseError, match="write the repository's own address"):
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


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as a release of this checkout writes it."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "charts", root / "charts")
    shutil.copy(ROOT / "CHANGELOG.md", root)
    images = {image: f"registry.example:5000/owner/dtj-{image}@{DIGEST}" for image in ("operator", "trainer")}
    release.release_chart(root, repository="https://code.example/owner/dtj", **images)
    with pytest.raises(release.ReleaseError, match="take the one of the checkout"):
        release.release_chart(root, repository="https://code.example/owner/dtj", **images)
    return root / "charts" / "dtj"


def test_the_chart_of_a_checkout_names_no_address() -> None:
    assert "://" not in (ROOT / "charts" / "dtj" / "Chart.yaml").read_text()


def test_a_released_chart_says_where_it_comes_from(released: Path) -> None:
    chart = yaml.safe_load((released / "Chart.yaml").read_text())
    assert chart["home"] == "https://code.example/owner/dtj"
    assert chart["sources"] == [chart["home"]]
    assert chart["maintainers"] == [{"name": "owner", "url": "https://code.example/owner"}]
    address, _, icon = chart["icon"].partition(f"/v{__version__}/")
    assert address == f"{chart['home']}/raw"
    assert (ROOT / icon).exists()
    for link in yaml.safe_load(chart["annotations"]["artifacthub.io/links"]):
        address, _, file = link["url"].partition(f"/blob/v{__version__}/")
        assert address == chart["home"] or link["name"] == "support"
        assert (ROOT / file).exists()


def test_artifact_hub_reads_the_crds_examples_images_and_changes_of_a_released_chart(released: Path) -> None:
    annotations = yaml.safe_load((released / "Chart.yaml").read_text())["annotations"]
    read = {name.partition("/")[2]: yaml.safe_load(text) for name, text in annotations.items()}
    assert [(crd["kind"], crd["version"]) for crd in read["crds"]] == [(KIND, VERSION)]
    for example in read["crdsExamples"]:
        (container,) = example["spec"]["template"]["spec"]["containers"]
        assert container["image"].startswith(f"registry.example:5000/owner/dtj-trainer:{__version__}")
    assert [image["image"] for image in read["images"]] == [
        f"registry.example:5000/owner/dtj-{image}@{DIGEST}" for image in ("operator", "trainer")
    ]
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert {change["kind"] for change in read["changes"]} <= kinds
    assert "**" not in annotations["artifacthub.io/changes"]
    assert len(read["changes"]) == release.notes(__version__, (ROOT / "CHANGELOG.md").read_text()).count("\n- ")


@pytest.mark.parametrize(
    "url", ["", "github.com/a/b", "https://github.com/a", "https://github.com/a/b\n", "https://x/a/b c"]
)
def test_what_is_no_address_of_a_repository_is_refused(url: str) -> None:
    with pytest.raises(release.ReleaseError, match="no address of a repository"):
        release.check_repository(url)


def test_the_readme_of_a_released_chart_needs_no_checkout(released: Path) -> None:
    readme = (released / "README.md").read_text()
    assert f"oci://registry.example:5000/owner/charts/dtj --version {__version__} " in readme
    assert "](../" not in readme
    assert "charts/dtj --namespace" not in readme


def test_an_image_without_a_digest_is_not_released() -> None:
    with pytest.raises(release.ReleaseError, match="no digest"):
        release.with_images("image:\n", operator="ghcr.io/a/dtj-operator:0.1.0", trainer="")


def test_default_images_are_of_one_registry_that_nobody_can_own() -> None:
    values = yaml.safe_load((ROOT / "charts" / "dtj" / "values.yaml").read_text())
    named = {values[name]["repository"].rpartition("/")[0] for name in ("image", "trainerImage")}
    for path in (ROOT / "examples").glob("*.yaml"):
        named.update(re.findall(r"image: (\S+)/dtj-", path.read_text()))
    assert named == {IMAGE_REGISTRY} == {"registry.example"}


def test_a_release_names_its_own_registry_in_one_place() -> None:
    before = (ROOT / release.NAMES).read_text()
    after = release.with_registry(before, "ghcr.io/owner")
    assert after.replace("ghcr.io/owner", IMAGE_REGISTRY) == before
    assert 'IMAGE_REGISTRY: Final = "ghcr.io/owner"' in after


@pytest.mark.parametrize("registry", ["", "ghcr.io", "ghcr.io/Owner", 'x/y"; import os'])
def test_a_registry_without_an_owner_is_refused(registry: str) -> None:
    with pytest.raises(release.ReleaseError, match="not a registry with an owner"):
        release.with_registry((ROOT / release.NAMES).read_text(), registry)


def test_the_list_of_packages_names_each_package_of_the_locks_once() -> None:
    for image, locks in release_build.LOCKS.items():
        texts = [(ROOT / lock).read_text() for lock in locks]
        document = release_build.bill_of_materials(image, "1.2.3", *texts)
        purls = [component["purl"] for component in document["components"]]
        pinned = re.findall(r"^([\w.-]+)==([^\s;]+)", "\n".join(texts), re.MULTILINE)
        assert len(purls) == len(set(purls)) == len(set(pinned))
        assert document["dependencies"] == [{"ref": image, "dependsOn": purls}]


def test_the_locks_of_the_trainer_are_those_that_its_image_installs_without_an_argument() -> None:
    installed = set(
        re.findall(
            r"--requirement \"?/src/requirements/([a-z]+)\.lock", (ROOT / "trainer-image" / "Dockerfile").read_text()
        )
    )
    installed -= {"tfjs", "build"}  # by an argument, and removed from the image
    listed = {Path(lock).stem.removeprefix("requirements-") for lock in release_build.LOCKS["dtj-trainer"]}
    assert listed == installed | {"requirements"}


def test_the_package_of_the_chart_holds_its_files_and_is_the_same_each_time() -> None:
    chart = ROOT / "charts" / "dtj"
    files = [path for path in chart.rglob("*") if path.is_file()]
    values = release_build.with_digests(chart, {})
    packed = release_build.package_chart(chart, values)
    assert packed == release_build.package_chart(chart, values)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert set(archive.getnames()) == {f"dtj/{path.relative_to(chart)}" for path in files}
        content = archive.extractfile("dtj/Chart.yaml")
        assert content is not None
        assert yaml.safe_load(content.read())["version"] == __version__


def test_the_package_of_the_chart_names_the_images_that_were_built_by_digest(tmp_path: Path) -> None:
    chart = ROOT / "charts" / "dtj"
    digests = {"operator": DIGEST, "trainer": f"sha256:{'b' * 64}"}
    packed = release_build.package_chart(chart, release_build.with_digests(chart, digests))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        content = archive.extractfile("dtj/values.yaml")
        assert content is not None
        values = yaml.safe_load(content.read())
    for image, section in release_build.IMAGES.items():
        assert values[section]["repository"] == f"{IMAGE_REGISTRY}/dtj-{image}"
        assert values[section]["digest"] == digests[image]


def test_notes_are_the_section_of_the_version_alone() -> None:
    text = "# Changelog\n\n## 0.2.0 - 2026-12-01\n\nnew\n\n## 0.1.0 - 2026-11-01\n\nold\n"
    assert release.notes("0.2.0", text) == "## 0.2.0 - 2026-12-01\n\nnew\n\n"
    assert release.notes("0.1.0", text) == "## 0.1.0 - 2026-11-01\n\nold\n"
    with pytest.raises(release.ReleaseError, match=r"no section `## 0\.3\.0"):
        release.notes("0.3.0", text)


def test_a_folder_that_holds_no_release_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(release_build.BuildError, match="is not empty and holds no release"):
        release_build.build(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_bundle_for_olm_needs_helm_and_says_so(tmp_path: Path) -> None:
    missing = tmp_path / "helm"
    with pytest.raises(release.ReleaseError, match="install helm"):
        olm.build(tmp_path / "dtj-1.2.3.tgz", helm=str(missing), repository="https://code.example/a/b", root=ROOT)


def test_pypi_gets_the_distributions_and_nothing_else_of_a_release() -> None:
    command = (
        (ROOT / ".github" / "workflows" / "release.yml").read_text().partition("/uv publish ")[2].partition("\n")[0]
    )
    patterns = [word.removeprefix("dist/") for word in command.split() if word.startswith("dist/")]
    distributions = [name.replace("-", "_") for name in release_build.DISTRIBUTIONS]
    files = [f"{name}-1.2.3{end}" for name in distributions for end in (".tar.gz", "-py3-none-any.whl")]
    others = [*(krew.archive_name(name, "1.2.3") for name in krew.PLATFORMS), krew.MANIFEST, "dtj-1.2.3.tgz"]
    others.append("dtj-bundle-1.2.3.tar.gz")
    sent = [name for name in (*files, *others) if any(fnmatch(name, pattern) for pattern in patterns)]
    assert sent == files


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
