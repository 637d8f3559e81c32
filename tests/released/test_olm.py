"""The bundle for OLM in a release, judged by the validator of OLM's project and by what helm installs."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtj import __version__
from support.chart import Helm, arguments, granted, operator_rules
from testbed import binaries

VERSION, CRD = "dtj.clusterserviceversion.yaml", "distributedtrainingjobs.yaml"


@pytest.fixture
def bundle(released: Path, tmp_path: Path) -> Path:
    """The bundle, unpacked."""
    with tarfile.open(released / f"dtj-bundle-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path / "bundle", filter="data")
    return tmp_path / "bundle"


def complaints(bundle: Path) -> list[str]:
    """What the validator says, other than two warnings that it gives each operator with these rights."""
    program = binaries.ensure(("operator-verify",))["operator-verify"]
    command = [str(program), "manifests", "--operatorhub_validate", "--object_validate", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    own_name = '"operatorhub\\" validator is deprecated'
    # A rule about events names no version, and v1beta1 is gone. Version 0.43, which needs Go 1.26, knows of v1.
    of_events = "Migrate the API(s) for events: (["
    heard = done.stderr.splitlines()
    for known in (own_name, of_events):
        (line,) = (line for line in heard if known in line and line.count("([") <= 1)
        heard.remove(line)
    return heard


def test_the_validator_has_nothing_to_say_until_the_crd_is_missing(bundle: Path) -> None:
    assert complaints(bundle) == []
    (bundle / "manifests" / CRD).unlink()
    (line,) = complaints(bundle)
    assert "owned CRD" in line


def test_olm_runs_the_operator_as_helm_does_and_grants_the_same_rights(bundle: Path, tmp_path: Path) -> None:
    helm = Helm(program=binaries.ensure(("helm",))["helm"], home=tmp_path)
    by_helm = helm.objects({"rbac": {"blockOwnerDeletion": True}}, namespace="team")
    install: dict[str, Any] = yaml.safe_load((bundle / "manifests" / VERSION).read_text())["spec"]["install"]["spec"]
    (deployment,) = install["deployments"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [word.replace("$(POD_NAMESPACE)", "team") for word in container["args"]] == arguments(by_helm)
    assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert "runAsUser" not in pod["securityContext"], "OpenShift refuses users that it has not chosen"
    rules = operator_rules(by_helm)
    for field, where in (("clusterPermissions", "*"), ("permissions", "team")):
        (permission,) = install[field]
        assert permission["serviceAccountName"] == pod["serviceAccountName"]
        assert granted(permission["rules"]) == granted(rules[where])


def test_the_bundle_brings_nothing_that_only_helm_or_one_namespace_knows(bundle: Path) -> None:
    manifests = {path.name: path.read_text() for path in (bundle / "manifests").iterdir()}
    kept = {"dtj.poddisruptionbudget.yaml", "dtj-view.clusterrole.yaml", "dtj-edit.clusterrole.yaml"}
    assert set(manifests) == {VERSION, CRD, *kept}
    for name, text in manifests.items():
        assert "helm" not in text.lower()
        assert name == VERSION or "POD_NAMESPACE" not in text
