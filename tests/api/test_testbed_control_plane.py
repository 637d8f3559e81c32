"""The testbed keeps its own promises: the other `api` tests lean on every one of them."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from testbed import ApiError, ControlPlane, KubectlError
from testbed.processes import PROC

pytestmark = pytest.mark.api

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bells.tower.example.com}
spec:
  group: tower.example.com
  scope: Namespaced
  names: {kind: Bell, plural: bells}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              weight: {type: integer}
            x-kubernetes-validations:
            - {rule: "self.weight > 0", message: a bell weighs something}
"""


def pod(name: str) -> str:
    """A pod manifest, as kubectl reads it."""
    container = {"name": "main", "image": "example.com/none"}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
    )


def bell(weight: int) -> str:
    """A bell manifest, as kubectl reads it."""
    return json.dumps(
        {"apiVersion": "tower.example.com/v1", "kind": "Bell", "metadata": {"name": "big"}, "spec": {"weight": weight}}
    )


def watch_once(plane: ControlPlane, namespace: str, *, version: str) -> list[dict[str, object]]:
    """The events that a watch of config maps from `version` on gives within a second."""
    path = f"/api/v1/namespaces/{namespace}/configmaps?watch=1&timeoutSeconds=1&resourceVersion={version}"
    return [json.loads(line) for line in plane.api.text("GET", path).splitlines()]


def processes_naming(text: str) -> list[str]:
    """The command lines of this machine's processes that contain `text`."""
    lines = []
    for file in PROC.glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            lines.append(file.read_bytes().replace(b"\0", b" ").decode())
    return [line for line in lines if text in line]


def test_the_api_server_answers_with_the_version_it_was_built_as(cluster: ControlPlane) -> None:
    assert cluster.api.request("GET", "/version")["gitVersion"] == "v1.35.4"


def test_a_custom_resource_is_validated_by_its_rules(cluster: ControlPlane, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "bells.yaml").write_text(CRD)
    cluster.install_crds(tmp_path)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=bell(13))
    with pytest.raises(KubectlError, match="a bell weighs something"):
        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=bell(0))


def test_a_pod_can_be_made_in_a_fresh_namespace_and_stays_pending(cluster: ControlPlane, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=pod("one"))
    assert cluster.api.request("GET", f"/api/v1/namespaces/{namespace}/pods/one")["status"]["phase"] == "Pending"


def test_the_audit_log_shows_exactly_the_writes_of_a_user(cluster: ControlPlane, namespace: str) -> None:
    mark = cluster.audit.mark()
    cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=pod("one"))
    cluster.kubectl("create", "-n", namespace, "-f", "-", "--dry-run=server", stdin=pod("two"))
    cluster.kubectl("get", "pods", "-n", namespace)
    writes = cluster.audit.writes(since=mark, user_agent="kubectl", namespace=namespace)
    assert [str(record) for record in writes] == [f"create pods/{namespace}/one -> 201"]
    with_dry_run = cluster.audit.writes(since=mark, user_agent="kubectl", namespace=namespace, dry_run=True)
    assert [record.dry_run for record in with_dry_run] == [False, True]


def test_a_user_without_rights_is_refused_and_the_log_names_the_user(cluster: ControlPlane, namespace: str) -> None:
    guest = cluster.kubeconfig_for("guest@example.com", groups=["guests"])
    mark = cluster.audit.mark()
    with pytest.raises(KubectlError, match=r'User "guest@example\.com" cannot create'):
        cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=pod("one"), kubeconfig=guest)
    [record] = cluster.audit.writes(since=mark, user="guest@example.com")
    assert (record.code, record.namespace) == (403, namespace)


class TestAnApiServerOfOnesOwn:
    """Tests that break the API server, one after another on the same one."""

    def test_a_restart_keeps_address_and_data(self, own_control_plane: ControlPlane) -> None:
        namespace = own_control_plane.new_namespace()
        own_control_plane.kubectl("create", "-n", namespace, "configmap", "kept")
        url = own_control_plane.url
        own_control_plane.restart_apiserver()
        assert own_control_plane.url == url
        own_control_plane.kubectl("get", "-n", namespace, "configmap", "kept")

    def test_nobody_answers_during_an_outage(self, own_control_plane: ControlPlane) -> None:
        with own_control_plane.outage(), pytest.raises(OSError, match="refused"):
            own_control_plane.api.request("GET", "/version")
        assert own_control_plane.running()

    def test_an_object_deleted_during_an_outage_is_gone(self, own_control_plane: ControlPlane) -> None:
        namespace = own_control_plane.new_namespace()
        own_control_plane.kubectl("create", "-n", namespace, "configmap", "ghost")
        with own_control_plane.outage() as etcd:
            etcd.delete(f"/registry/configmaps/{namespace}/ghost")
        with pytest.raises(ApiError) as refused:
            own_control_plane.api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/ghost")
        assert refused.value.code == 404

    def test_a_watch_from_before_expired_history_gets_410(self, own_control_plane: ControlPlane) -> None:
        namespace = own_control_plane.new_namespace()
        listed = own_control_plane.api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")
        version = listed["metadata"]["resourceVersion"]
        own_control_plane.kubectl("create", "-n", namespace, "configmap", "missed")
        assert [event["type"] for event in watch_once(own_control_plane, namespace, version=version)][-1] == "ADDED"
        own_control_plane.expire_watches()
        [event] = watch_once(own_control_plane, namespace, version=version)
        assert event["type"] == "ERROR"
        assert event["object"]["code"] == 410  # type: ignore[index]

    def test_stop_leaves_no_process_and_no_file(self, own_control_plane: ControlPlane) -> None:
        run = own_control_plane.run
        assert len(processes_naming(f"{run}/")) >= 4
        own_control_plane.stop()
        assert processes_naming(f"{run}/") == []
        assert not run.exists()
