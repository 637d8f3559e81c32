"""The testbed's pure parts: versions and cache keys."""

from pathlib import Path

import pytest

from support import kubernetes_versions
from testbed import binaries
from testbed.binaries import Module
from testbed.errors import Unavailable
from testbed.versions import VERSIONS


def test_the_cache_key_changes_with_go_mod_and_with_go_sum(tmp_path: Path) -> None:
    module = Module(folder=tmp_path / "thing", upstream="example.com/a", cold_minutes=1)
    module.folder.mkdir()
    keys = set()
    for go_mod, go_sum in [("a", "b"), ("a", "c"), ("d", "c"), ("ab", "")]:
        (module.folder / "go.mod").write_text(go_mod)
        (module.folder / "go.sum").write_text(go_sum)
        keys.add(module.key)
    assert len(keys) == 4
    assert all(key.startswith("thing-") for key in keys)


def assets(folder: Path, *, version: str) -> None:
    """A folder as `setup-envtest` fills it; its kube-apiserver only prints its version."""
    for name, says in (("etcd", "etcd"), ("kube-apiserver", f"Kubernetes {version}"), ("kubectl", "kubectl")):
        (folder / name).write_text(f"#!/bin/sh\necho {says}\n")
        (folder / name).chmod(0o755)


def test_kubebuilder_assets_of_another_minor_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets(tmp_path, version="v1.20.3")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    wanted = binaries.KUBERNETES.version.rpartition(".")[0]
    with pytest.raises(Unavailable, match=rf"kube-apiserver is Kubernetes v1\.20\.3, and the tests need {wanted}"):
        binaries.ensure(("kube-apiserver",))


def test_the_matrix_runs_the_oldest_and_the_newest_version_unless_it_is_asked_for_others() -> None:
    assert kubernetes_versions.chosen("") == ("1.30", "1.37")
    assert kubernetes_versions.chosen("all") == tuple(VERSIONS)
    assert kubernetes_versions.chosen("1.32,1.34") == ("1.32", "1.34")
    with pytest.raises(ValueError, match=r"DTJ_KUBERNETES_VERSIONS=1\.29: 1\.29 is none of 1\.30, "):
        kubernetes_versions.chosen("1.29")


def test_the_oldest_version_of_the_matrix_is_the_oldest_that_the_chart_accepts() -> None:
    chart = (Path(__file__).parents[3] / "charts" / "dtj" / "Chart.yaml").read_text()
    assert f'kubeVersion: ">={kubernetes_versions.chosen("")[0]}.0-0"' in chart
