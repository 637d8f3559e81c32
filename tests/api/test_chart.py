"""The Helm chart: what it renders, what it refuses, and that its rights are exactly what the operator uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import yaml

from dtj.api.json import JsonObject, dig, object_at, text
from dtj.api.tfjob import crd as tfjob_crd
from dtj.app.main import main
from dtj.app.settings import job_access
from dtj.engine.profile_file import read_profiles
from dtj.kube.rbac import (
    FOR_GANGS,
    FOR_KUEUE,
    FOR_NETWORK_POLICIES,
    IN_THE_CLUSTER,
    LEADER_ELECTION_RULES,
    NAMESPACE_RULES,
)
from patience import PATIENCE_SECONDS
from support.chart import (
    ALL_OF_TFJOBS,
    CHART,
    RELEASE,
    Granted,
    Helm,
    HelmError,
    arguments,
    granted,
    is_hook,
    listed,
    of_kind,
    operator_rules,
)
from support.full_life import live_through_everything
from support.job_world import JobWorld
from support.kubeconfigs import copied
from support.operator_process import OperatorProcess
from support.waiting import eventually, eventually_true
from testbed import ControlPlane

# The tools are built by the first test that needs them.
pytestmark = pytest.mark.timeout(1200)

ROOT = CHART.parents[1]
GOLDEN = Path(__file__).parent / "golden"

NAMESPACED: JsonObject = {"namespaces": ["team-a", "team-b"]}
EVERYTHING: JsonObject = {
    "namespaces": ["team-a"],
    "image": {"digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "restricted": True,
    "verbose": True,
    "acceleratorProfiles": [
        {
            "name": "lab",
            "resource": "nvidia.com/gpu",
            "nodeSelector": {"gpu": "a100"},
            "resources": {"rdma/hca": "1"},
            "capabilities": ["IPC_LOCK"],
        }
    ],
    "rbac": {"blockOwnerDeletion": True},
    "tfjob": ALL_OF_TFJOBS,
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "ml"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "networkPolicy": {
        "apiServerPorts": [443, 6443],
        "metricsFrom": [{"namespaceSelector": {}}],
        "jobs": {"statusFrom": [{"namespaceSelector": {}}], "tensorBoardFrom": [{"podSelector": {}}]},
    },
    "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "dashboard": {"enabled": True},
    "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
}
OF_PROMETHEUS = ("PodMonitor", "PrometheusRule")
"""Kinds that an API server without Prometheus' operator does not have."""

MODES: Mapping[str, JsonObject] = {
    "cluster-wide": {},
    "namespaced": NAMESPACED,
    "everything": EVERYTHING,
    "tfjobs": {"tfjob": {"enabled": True}},
}


class TestWhatItRenders:
    def test_helm_finds_nothing_to_complain_about(self, helm: Helm) -> None:
        assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART))

    @pytest.mark.parametrize("mode", ["cluster-wide", "namespaced"])
    def test_it_renders_what_a_person_has_read(self, helm: Helm, mode: str, tmp_path: Path) -> None:
        rendered = helm.render({**MODES[mode], "crds": {"enabled": False}})
        golden = GOLDEN / f"chart-{mode}.yaml"
        fresh = tmp_path / golden.name
        fresh.write_text(rendered)
        assert rendered == golden.read_text(), f"read the difference; if it is meant: cp {fresh} {golden}"

    @pytest.mark.parametrize("mode", MODES)
    def test_a_real_api_server_takes_each_object_without_a_field_that_it_does_not_know(
        self, helm: Helm, cluster: ControlPlane, namespace: str, mode: str
    ) -> None:
        bodies = [body for body in helm.objects(MODES[mode]) if body["kind"] not in OF_PROMETHEUS]
        for body in bodies:
            metadata = object_at(body, "metadata")
            if "namespace" in metadata:
                metadata["namespace"] = namespace
            if body["kind"] == "Pod":  # that of `helm test`, whose own account is not there
                object_at(body, "spec")["serviceAccountName"] = "default"
        everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
        cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", "-", stdin=everything)

    def test_a_real_api_server_takes_the_examples(self, cluster: ControlPlane, namespace: str) -> None:
        examples = ("-n", namespace, "--filename", str(ROOT / "examples"))
        cluster.kubectl("apply", "--dry-run=server", "--validate=strict", *examples)

    @pytest.mark.parametrize("mode", MODES)
    def test_kube_score_finds_nothing_critical(self, helm: Helm, tools: Mapping[str, Path], mode: str) -> None:
        done = subprocess.run(
            # A limit on CPU only slows the operator down. Tags of releases are never moved: there is nothing to pull
            # again.
            [
                tools["kube-score"],
                "score",
                "-",
                "--ignore-container-cpu-limit",
                "--ignore-test=container-image-pull-policy",
                "--output-format=ci",
            ],
            # The pod of `helm test`, which lives for seconds and serves nothing, cannot be judged by its neighbours.
            input="---\n".join(yaml.safe_dump(body) for body in helm.objects(MODES[mode]) if not is_hook(body)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert "[OK]" in done.stdout
        assert [line for line in done.stdout.splitlines() if line.startswith("[CRITICAL]")] == []

    @pytest.mark.parametrize("mode", MODES)
    def test_the_operator_knows_each_option_that_it_is_given(self, helm: Helm, mode: str) -> None:
        known = {option for parameter in main.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {argument.partition("=")[0] for argument in arguments(helm.objects(MODES[mode]))} <= known

    def test_the_operator_reads_who_may_connect_to_jobs_as_it_is_given(self, helm: Helm) -> None:
        given = [argument.removeprefix("--network-policies=") for argument in arguments(helm.objects(EVERYTHING))]
        (access,) = (job_access(argument) for argument in given if argument.startswith("{"))
        operator, somebody = access.status
        assert dig(operator, "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name") == "dtj-system"
        (deployment,) = of_kind(helm.objects(EVERYTHING), "Deployment")
        assert dig(operator, "podSelector", "matchLabels") == dig(deployment, "spec", "selector", "matchLabels")
        assert somebody == {"namespaceSelector": {}}
        assert access.tensorboard == ({"podSelector": {}},)

    def test_accelerator_profiles_reach_the_operator_as_they_are_given(self, helm: Helm) -> None:
        (config_map,) = [
            body
            for body in of_kind(helm.objects(EVERYTHING), "ConfigMap")
            if dig(body, "data", "accelerator-profiles.yaml")
        ]
        (profile,) = read_profiles(text(dig(config_map, "data", "accelerator-profiles.yaml")), where="of the chart")
        assert (profile.name, profile.resource, profile.node_selector) == ("lab", "nvidia.com/gpu", {"gpu": "a100"})
        assert (profile.resources, profile.capabilities) == ({"rdma/hca": "1"}, ("IPC_LOCK",))

    def test_other_accelerator_profiles_restart_the_operator(self, helm: Helm) -> None:
        def template(profile: str) -> object:
            values: JsonObject = {"acceleratorProfiles": [{"name": profile, "resource": "nvidia.com/gpu"}]}
            return dig(of_kind(helm.objects(values), "Deployment")[0], "spec", "template", "metadata", "annotations")

        assert template("a") != template("b")

    def test_alerts_are_those_of_the_chart_with_prometheus_own_templates_left_as_they_are(self, helm: Helm) -> None:
        (rule,) = of_kind(helm.objects(EVERYTHING), "PrometheusRule")
        assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
        assert dig(rule, "metadata", "labels", "release") == "prometheus"
        assert "{{ $labels.verb }}" in json.dumps(rule)

    def test_a_digest_wins_over_a_tag(self, helm: Helm) -> None:
        digest = f"sha256:{'1' * 64}"
        (deployment,) = of_kind(helm.objects({"image": {"tag": "1.2", "digest": digest}}), "Deployment")
        image = dig(deployment, "spec", "template", "spec", "containers", 0, "image")
        assert image == f"registry.example/dtj-operator@{digest}"

    def test_the_crd_is_the_one_of_the_project_and_outlives_the_chart_unless_a_value_says_otherwise(
        self, helm: Helm
    ) -> None:
        (kept,) = of_kind(helm.objects(), "CustomResourceDefinition")
        (path,) = (ROOT / "crds").glob("*.yaml")
        assert kept["spec"] == yaml.safe_load(path.read_text())["spec"]
        assert dig(kept, "metadata", "annotations") == {"helm.sh/resource-policy": "keep"}
        (going,) = of_kind(helm.objects({"crds": {"keep": False}}), "CustomResourceDefinition")
        assert dig(going, "metadata", "annotations", "helm.sh/resource-policy") is None
        assert of_kind(helm.objects({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


INSTANCE = "app.kubernetes.io/instance"
CONTAINER = "kubectl.kubernetes.io/default-container"


class TestWhatItRefuses:
    @pytest.mark.parametrize(
        ("values", "complaint"),
        [
            ({"replica": 3}, "additional properties 'replica' not allowed"),
            ({"networkPolicy": {"jobs": {"statusFrom": [{}]}}}, "minProperties: got 0, want 1"),
            ({"acceleratorProfiles": [{"name": "a"}]}, "missing property 'resource'"),
            ({"image": {"digest": "latest"}}, "does not match pattern"),
            ({"replicas": "two"}, "got string, want integer"),
            ({"namespaces": "team-a"}, "got string, want array"),
            ({"workers": 0}, "minimum: got 0, want 1"),
            ({"leaderElection": {"enabled": False}}, "two operators would run the same jobs; set replicas to 1"),
            (
                {"metrics": {"enabled": False, "podMonitor": {"enabled": True}}},
                "set metrics.enabled to true, or podMonitor.enabled to false",
            ),
            (
                {"metrics": {"enabled": False}, "alerts": {"enabled": True}},
                "set metrics.enabled to true, or alerts.enabled to false",
            ),
            ({"tfjob": {"cleanPodPolicy": "running"}}, "value must be one of 'None', 'Running', 'All'"),
            ({"tfjob": {"enabled": True, "crds": True}}, "additional properties 'crds' not allowed"),
            (
                {"tfjob": {"enabled": True, "gangScheduler": "Volcano"}, "gangSchedulers": ["Kueue"]},
                "tfjob.gangScheduler is Volcano, which gangSchedulers does not name: add it there",
            ),
            (
                {"tfjob": {"enabled": True, "kueue": "Own"}, "gangSchedulers": ["Volcano"]},
                "tfjob.kueue is Own, but gangSchedulers does not name Kueue: add it there",
            ),
            *(
                (values, f"{field} sets {key}, which the chart sets itself: remove it there")
                for key, field, values in (
                    (INSTANCE, "podLabels", {"podLabels": {INSTANCE: "x"}}),
                    (INSTANCE, "alerts.labels", {"alerts": {"enabled": True, "labels": {INSTANCE: "x"}}}),
                    (INSTANCE, "dashboard.labels", {"dashboard": {"enabled": True, "labels": {INSTANCE: "x"}}}),
                    (
                        INSTANCE,
                        "metrics.podMonitor.labels",
                        {"metrics": {"podMonitor": {"enabled": True, "labels": {INSTANCE: "x"}}}},
                    ),
                    (CONTAINER, "podAnnotations", {"podAnnotations": {CONTAINER: "x"}}),
                )
            ),
        ],
        ids=lambda value: "" if isinstance(value, str) else json.dumps(value),
    )
    def test_it_refuses_what_cannot_be_meant(self, helm: Helm, values: JsonObject, complaint: str) -> None:
        with pytest.raises(HelmError) as error:
            helm.render(values)
        assert complaint in str(error.value)


class TestRights:
    def test_a_cluster_wide_operator_may_do_what_its_code_lists_and_nothing_else(self, helm: Helm) -> None:
        rules = operator_rules(helm.objects())
        assert granted(rules.pop("*")) == listed(
            NAMESPACE_RULES, FOR_NETWORK_POLICIES, IN_THE_CLUSTER, *FOR_GANGS.values(), FOR_KUEUE
        )
        assert granted(rules.pop("dtj-system")) == listed(LEADER_ELECTION_RULES)
        assert rules == {}

    def test_a_namespaced_operator_may_do_it_in_these_namespaces_only(self, helm: Helm) -> None:
        rules = operator_rules(helm.objects(NAMESPACED))
        for namespace in ("team-a", "team-b"):
            assert granted(rules.pop(namespace)) == listed(NAMESPACE_RULES, FOR_NETWORK_POLICIES, *FOR_GANGS.values())
        assert granted(rules.pop("dtj-system")) == listed(LEADER_ELECTION_RULES)
        assert rules == {}

    @pytest.mark.parametrize("gang", FOR_GANGS)
    def test_it_has_rights_to_the_gang_schedulers_that_are_named_and_to_no_others(self, helm: Helm, gang: str) -> None:
        rules = operator_rules(helm.objects({**NAMESPACED, "gangSchedulers": [gang]}))
        assert granted(rules["team-a"]) == listed(NAMESPACE_RULES, FOR_NETWORK_POLICIES, FOR_GANGS[gang])

    def test_without_a_policy_for_each_job_it_has_no_right_to_policies_and_gets_none(self, helm: Helm) -> None:
        bodies = helm.objects({**NAMESPACED, "networkPolicy": {"jobs": {"enabled": False}}})
        assert granted(operator_rules(bodies)["team-a"]) == listed(NAMESPACE_RULES, *FOR_GANGS.values())
        assert not any("--network-policies" in argument for argument in arguments(bodies))

    def test_its_right_to_leases_is_to_its_own(self, helm: Helm) -> None:
        rules = operator_rules(helm.objects(NAMESPACED))["dtj-system"]
        named = [rule for rule in rules if rule.get("resourceNames")]
        assert [rule["resourceNames"] for rule in named] == [[RELEASE]]
        assert granted(rule for rule in rules if rule not in named) == {
            Granted("coordination.k8s.io", "leases", "create")
        }

    def test_without_an_election_it_has_no_right_to_leases(self, helm: Helm) -> None:
        rules = operator_rules(helm.objects({"leaderElection": {"enabled": False}, "replicas": 1}))
        assert "dtj-system" not in rules

    @pytest.mark.parametrize("mode", MODES)
    def test_no_role_has_a_wildcard(self, helm: Helm, mode: str) -> None:
        for role in helm.objects(MODES[mode]):
            if role["kind"] in ("Role", "ClusterRole"):
                assert "*" not in json.dumps(role["rules"])

    def test_users_get_their_rights_through_the_built_in_roles(
        self, helm: Helm, cluster: ControlPlane, namespace: str
    ) -> None:
        roles = [body for body in of_kind(helm.objects(namespace=namespace), "ClusterRole") if _is_for_users(body)]
        cluster.apply(*roles)
        try:
            expected = {
                "view": {"get": True, "list": True, "create": False, "delete": False},
                "edit": {"get": True, "create": True, "patch": True, "delete": True},
            }
            for role, verbs in expected.items():
                user = f"{role}er-{namespace}"
                cluster.kubectl(
                    "create", "rolebinding", role, f"--clusterrole={role}", f"--user={user}", "-n", namespace
                )
                for verb, allowed in verbs.items():
                    eventually(partial(_may, cluster, namespace, user=user, verb=verb, allowed=allowed))
        finally:
            cluster.kubectl("delete", "clusterrole", *(text(dig(role, "metadata", "name")) for role in roles))


class TestTheOperatorUnderTheRenderedRights:
    """The operator runs as the chart's service account; all that it asks of the API server is in the audit log."""

    @pytest.fixture(params=["cluster-wide", "namespaced"])
    def installed(
        self, request: pytest.FixtureRequest, helm: Helm, own_control_plane: ControlPlane
    ) -> Iterator[tuple[list[JsonObject], JobWorld]]:
        """The chart's objects, installed without the CRD, which is there, and without pods, for which no node is.

        In a control plane of its own: a cluster-wide operator would take up the jobs of every other test.
        """
        world = JobWorld(own_control_plane, own_control_plane.new_namespace())
        values: JsonObject = {"crds": {"enabled": False}, "replicas": 0}
        if request.param == "namespaced":
            own_control_plane.apply(tfjob_crd.custom_resource_definition())
            values |= {"namespaces": [world.namespace], "tfjob": {"enabled": True, "crd": {"enabled": False}}}
        here = replace(helm, kubeconfig=own_control_plane.kubeconfig)
        here.run("install", RELEASE, str(CHART), f"--namespace={world.namespace}", values=values)
        yield helm.objects(values, namespace=world.namespace), world
        here.run("uninstall", RELEASE, f"--namespace={world.namespace}")

    def test_it_uses_each_right_that_it_has_and_asks_for_no_other(
        self, installed: tuple[list[JsonObject], JobWorld], tmp_path: Path
    ) -> None:
        bodies, world = installed
        mark = world.plane.audit.mark()
        token = world.plane.kubectl("create", "token", RELEASE, "-n", world.namespace).stdout.strip()
        process = OperatorProcess(
            copied(world.plane.kubeconfig, tmp_path, user={"token": token}),
            *(argument for argument in arguments(bodies) if "-port" not in argument),
            log=tmp_path / "operator.log",
        )
        with process:
            process.await_line("leads now")
            tfjobs = "--tfjobs" in arguments(bodies)
            live_through_everything(world, flavors=_may_read_flavors(bodies), tfjobs=tfjobs)
            process.stop()
        user = f"system:serviceaccount:{world.namespace}:{RELEASE}"
        calls = [call for call in world.plane.audit.calls(since=mark, user=user) if call.resource]
        assert [str(call) for call in calls if call.code == 403] == []
        used = {
            Granted(call.group, f"{call.resource}/{call.subresource}" if call.subresource else call.resource, call.verb)
            for call in calls
        }
        allowed = {right for rules in operator_rules(bodies).values() for right in granted(rules)}
        assert {str(right) for right in used - allowed} == set()
        assert {str(right) for right in allowed - used - NOT_SERVED_YET} == set()


class TestTheSmokeTest:
    """What `helm test` runs in a pod, run here."""

    def test_it_is_content_with_an_operator_that_answers_and_leaves_nothing(
        self, world: JobWorld, operator: OperatorProcess
    ) -> None:
        done = _smoke_test(world)
        assert done.returncode == 0, done.stderr
        assert "the operator answered: " in done.stdout
        assert world.plane.kubectl("get", "dtj,pods,services", "-n", world.namespace, "-o", "name").stdout == ""

    def test_it_says_that_nobody_answers(self, world: JobWorld) -> None:
        done = _smoke_test(world, patience=1)
        assert done.returncode == 1
        assert "no operator answered within 1 s" in done.stderr


def _assert_established(plane: ControlPlane) -> None:
    """`kubectl wait` fails at once where a CRD has no conditions yet."""
    crds = json.loads(plane.kubectl("get", "crd", "-o", "json").stdout)["items"]
    assert crds
    for crd in crds:
        conditions = crd.get("status", {}).get("conditions") or []
        assert any((c["type"], c["status"]) == ("Established", "True") for c in conditions), crd["metadata"]["name"]


class TestInstalling:
    def test_jobs_survive_upgrade_uninstallation_and_reinstallation(
        self, helm: Helm, own_control_plane: ControlPlane
    ) -> None:
        plane = own_control_plane
        plane.kubectl("delete", "crd", "--all")
        here = replace(helm, kubeconfig=plane.kubeconfig)
        release = (RELEASE, "--namespace=dtj-system")
        here.run("install", *release, "--create-namespace", str(CHART), values={})
        eventually(lambda: _assert_established(plane))
        world = JobWorld(plane, plane.new_namespace())
        uid = world.submit().uid

        here.run("upgrade", *release, str(CHART), values={"workers": 16, "namespaces": [world.namespace]})
        assert world.job().uid == uid
        here.run("uninstall", *release)
        assert world.job().uid == uid
        assert (
            plane.kubectl(
                "get", "deployments,roles,rolebindings", "-A", "-l", "app.kubernetes.io/name=dtj-operator", "-o", "name"
            ).stdout
            == ""
        )
        here.run("install", *release, str(CHART), values={})
        assert world.job().uid == uid

        here.run("upgrade", *release, str(CHART), values={"crds": {"keep": False}})
        here.run("uninstall", *release)
        eventually_true(lambda: plane.kubectl("get", "crds", "-o", "name").stdout == "")


def _smoke_test(world: JobWorld, *, patience: int = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CHART / "files" / "smoke_test.py", world.namespace, str(patience)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "operator"), "KUBECONFIG": str(world.plane.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


NOT_SERVED_YET = {
    Granted("scheduling.k8s.io", "podgroups", verb) for verb in ("get", "list", "watch", "create", "delete", "patch")
}
"""The operator uses these in Kubernetes 1.37 and later."""


def _may_read_flavors(bodies: list[JsonObject]) -> bool:
    return Granted("kueue.x-k8s.io", "resourceflavors", "get") in granted(operator_rules(bodies).get("*", []))


def _may(cluster: ControlPlane, namespace: str, *, user: str, verb: str, allowed: bool) -> None:
    answer = cluster.kubectl(
        "auth", "can-i", verb, "distributedtrainingjobs", f"--as={user}", "-n", namespace, check=False
    )
    assert answer.stdout.strip() == ("yes" if allowed else "no")


def _is_for_users(role: JsonObject) -> bool:
    labels = dig(role, "metadata", "labels")
    return isinstance(labels, dict) and any("aggregate-to-" in label for label in labels)
