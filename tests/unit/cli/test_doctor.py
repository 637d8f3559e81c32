"""What ``dtj doctor`` makes of what it found."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from builders import NOW
from dtj import __version__
from dtj.api.crd import custom_resource_definition
from dtj.api.json import JsonObject, dig
from dtj.cli.doctor.checks import OLDEST_KUBERNETES, TESTED, findings
from dtj.cli.doctor.findings import Finding, Verdict, report
from dtj.client.installation import OF_A_PERSON, Answered, Installation, LeaseSeen, Queues, Size
from dtj.client.overview import Part
from dtj.core.gang.discovery import APIS
from dtj.kube.gateway import PODS, SERVICES
from support.installations import installation, node, operator
from support.screens import seen

CHART = Path(__file__).resolve().parents[3] / "charts" / "dtj" / "Chart.yaml"


def bad(found: Installation) -> list[Finding]:
    return [finding for finding in findings(found) if finding.verdict is not Verdict.OK]


def test_a_healthy_installation_has_nothing_to_fix() -> None:
    assert bad(installation()) == []


def test_every_finding_that_is_not_well_says_what_to_do() -> None:
    quota: JsonObject = {"metadata": {"name": "gpus"}, "status": {"hard": {"pods": "10"}, "used": {"pods": "9"}}}
    worst = installation(
        operator(ready=0, renewed=600, denied="pods", profiles="- {name: x, resource: x/y}"),
        version="v1.29.0",
        rights=Part(tuple(Answered(right, allowed=False, verb="get") for right in OF_A_PERSON)),
        quotas=Part((quota,)),
        limit_ranges=Part(({"metadata": {"name": "l"}, "spec": {"limits": [{"max": {"memory": "1M"}}]}},)),
        refusal=Part(("no",)),
    )
    assert len(bad(worst)) >= 9
    assert [finding for finding in bad(worst) if not finding.remedy] == []


def test_what_cannot_be_asked_is_not_checked_and_not_a_failure() -> None:
    blind = {"crd", "operators", "nodes", "quotas", "limit_ranges", "gangs", "refusal"}
    found = installation(**{part: Part(unread=f"{part} is forbidden") for part in blind})
    assert {finding.verdict for finding in bad(found)} == {Verdict.UNKNOWN}
    assert len(bad(found)) == len(blind)


def test_the_oldest_kubernetes_is_that_of_the_chart() -> None:
    wanted = yaml.safe_load(CHART.read_text())["kubeVersion"]
    assert wanted == ">=" + ".".join(map(str, OLDEST_KUBERNETES)) + ".0-0"
    (finding,) = bad(installation(version="v1.29.4-gke.1"))
    assert finding.verdict is Verdict.FAIL
    assert "1.30 or newer" in finding.words


def test_a_crd_that_is_missing_is_reported_before_all_else() -> None:
    found = bad(installation(served=False, crd=Part(unread="not found"), refusal=Part(unread="not known")))
    assert (found[0].title, found[0].verdict) == ("CRD", Verdict.FAIL)
    assert "kubectl apply -f crds/" in found[0].remedy


def test_a_crd_of_another_version_is_recognized_and_other_descriptions_make_none() -> None:
    ours = custom_resource_definition()
    other = copy.deepcopy(ours)
    spec = dig(other, "spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties")
    assert isinstance(spec, dict)
    spec["strategy"]["description"] = "other words"  # type: ignore[index,call-overload]
    assert bad(installation(crd=Part((other,)))) == []
    spec["description"] = {"type": "string"}  # a field of that name
    for crd in (other, {"spec": {"versions": [{"name": "v2"}]}}):
        (finding,) = bad(installation(crd=Part((crd,))))
        assert finding.verdict is Verdict.WARN
        assert finding.words == f"its schema of v1alpha1 differs from that of dtj {__version__}"


def test_an_operator_without_a_ready_pod_fails_and_one_of_two_warns() -> None:
    assert bad(installation(operator(ready=0)))[0].verdict is Verdict.FAIL
    assert bad(installation(operator(ready=1)))[0].verdict is Verdict.WARN


def test_a_lease_that_nobody_renews_fails() -> None:
    (finding,) = bad(installation(operator(renewed=300)))
    assert finding.words == "dtj-0 holds the lease of dtj-system/dtj, renewed 5m00s ago: no operator is working"
    assert finding.verdict is Verdict.FAIL


def test_a_lease_that_changes_is_alive_whatever_its_clock_says() -> None:
    old = LeaseSeen("dtj-0", NOW - timedelta(days=1), moved=True)
    assert bad(installation(replace(operator(), lease=Part((old,))))) == []


def test_no_operator_for_this_namespace_fails_and_names_those_that_are() -> None:
    assert "no Deployment" in bad(installation(operators=Part()))[0].words
    (finding,) = bad(installation(operator("--namespace=team-b", "--namespace=team-c")))
    assert finding.words == "no operator runs the jobs of team-a: dtj-system/dtj runs the jobs of team-b, team-c"


def test_an_operator_whose_calls_the_api_server_limits_is_shown_with_the_way_out() -> None:
    held = LeaseSeen("dtj-0", NOW, moved=False, throttled=True)
    (finding,) = bad(installation(replace(operator(), lease=Part((held,)))))
    assert "429 (Too Many Requests)" in finding.words
    assert "FlowSchema" in finding.remedy


def test_each_shard_of_an_operator_has_a_lease() -> None:
    assert operator().leases == (("dtj-system", "dtj"),)
    assert operator("--shards=3").leases == (("dtj-system", "dtj"), ("dtj-system", "dtj-1"), ("dtj-system", "dtj-2"))


def test_two_operators_for_one_namespace_fail() -> None:
    (finding,) = bad(installation(operator(), operator(name="other")))
    assert finding.words.startswith("dtj-system/dtj and dtj-system/other all run the jobs of namespace team-a")


def test_a_right_that_the_operator_lacks_is_named() -> None:
    (finding,) = bad(installation(operator(denied="persistentvolumeclaims")))
    assert finding.verdict is Verdict.FAIL
    assert "may not list persistentvolumeclaims (for checkpoint.claimTemplate)" in finding.words


def test_rights_that_the_person_lacks_are_named_and_fatal_only_where_jobs_cannot_be_seen() -> None:
    answers = [Answered(right, allowed=right.verbs != ("create",), verb="create") for right in OF_A_PERSON]
    (finding,) = bad(installation(rights=Part(tuple(answers))))
    assert finding.verdict is Verdict.WARN
    assert "may not create distributedtrainingjobs (to submit them)" in finding.words
    answers[0] = Answered(OF_A_PERSON[0], allowed=False, verb="get")
    assert bad(installation(rights=Part(tuple(answers))))[0].verdict is Verdict.FAIL


def test_a_gang_scheduler_that_the_operator_may_not_use_warns() -> None:
    kueue = next(api for api in APIS if api.gang == "Kueue")
    assert bad(installation(gangs=Part((kueue,)))) == []
    (finding,) = bad(installation(operator(denied="workloads"), gangs=Part((kueue,))))
    assert finding.remedy == "add Kueue to gangSchedulers of its chart"


def test_a_gang_scheduler_of_an_unknown_version_is_named_with_it() -> None:
    (finding,) = bad(installation(unknown_gangs=("kueue.x-k8s.io/v2",)))
    assert finding.title == "gang schedulers"
    assert "serves kueue.x-k8s.io/v2, which dtj" in finding.words
    assert "upgrade what is older" in finding.remedy


def test_a_configured_profile_that_matches_no_node_warns_and_shipped_ones_do_not() -> None:
    profiles = "- {name: h200, resource: nvidia.com/gpu, nodeSelector: {gpu: h200}}"
    (finding,) = bad(installation(operator(profiles=profiles)))
    assert finding.words.startswith("profile h200 matches no node")
    there = node("nvidia.com/gpu", {"gpu": "h200"})
    assert bad(installation(operator(profiles=profiles), nodes=Part((there,)))) == []
    (broken,) = bad(installation(operator(profiles="- {nme: h200}")))
    assert (broken.verdict, "\n" in broken.words) == (Verdict.FAIL, False)


def test_nodes_with_a_profiles_labels_and_no_device_point_at_the_device_plugin() -> None:
    labelled = node(labels={"cloud.google.com/gke-accelerator": "nvidia-l4"})
    (finding,) = bad(installation(nodes=Part((labelled,))))
    assert finding.words == "profile gke-nvidia-l4: 1 node with its labels, but no nvidia.com/gpu on any"


def test_a_quota_near_its_limit_warns() -> None:
    quota: JsonObject = {
        "metadata": {"name": "gpus"},
        "status": {
            "hard": {"requests.nvidia.com/gpu": "10", "memory": "100Gi", "pods": "0"},
            "used": {"requests.nvidia.com/gpu": "9", "memory": "80Gi", "pods": "0"},
        },
    }
    (finding,) = bad(installation(quotas=Part((quota,))))
    assert finding.words == "close to or at their limit: gpus requests.nvidia.com/gpu 9 of 10, gpus pods 0 of 0"


def test_a_limit_range_that_starves_a_trainer_warns() -> None:
    limits: JsonObject = {
        "metadata": {"name": "small"},
        "spec": {"limits": [{"type": "Container", "default": {"memory": "512Mi"}, "max": {"memory": "64Gi"}}]},
    }
    (finding,) = bad(installation(limit_ranges=Part((limits,))))
    assert finding.words == "LimitRange small limits the memory of a container without a limit to 512Mi"


def test_what_admission_says_against_a_job_fails() -> None:
    (finding,) = bad(installation(refusal=Part(("admission webhook denied the request",))))
    assert finding.verdict is Verdict.FAIL


@pytest.mark.parametrize("width", [50, 80])
def test_the_report_fits_the_terminal_and_counts(width: int) -> None:
    found = findings(installation(operator(ready=0), nodes=Part(unread="nodes is forbidden")))
    lines = seen(*report(found, wrapped=True), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[-1].strip() == "9 ok, 1 fail, 1 not checked"
    assert any(line.startswith("not checked  accelerators: nodes is forbidden") for line in lines)


def test_without_a_terminal_no_line_is_broken() -> None:
    long = Finding(Verdict.FAIL, "nobody " * 30, "look " * 30, title="leader")
    first, second, last = seen(*report([long], wrapped=False), width=40, soft_wrap=True).splitlines()
    assert first.startswith("fail         leader: nobody nobody")
    assert second.startswith("             do: look look")
    assert last == "1 fail"


def of_size(*sizes: Part[Size]) -> list[tuple[Verdict, str]]:
    found = findings(installation(sizes=sizes))
    return [(finding.verdict, finding.words) for finding in found if finding.title == "size"]


def test_what_there_is_is_shown_beside_what_kubernetes_is_tested_with() -> None:
    few = Part((Size(PODS, None, 120_000 - 1),)), Part((Size(SERVICES, "team-a", 3),))
    words = "119,999 of 150,000 pods in the cluster; 3 of 5,000 Services in namespace team-a"
    assert of_size(*few) == [(Verdict.OK, words)]


def test_from_four_fifths_on_what_is_near_is_named_and_what_may_not_be_counted_hides_nothing() -> None:
    unread: Part[Size] = Part(unread="forbidden")
    (verdict, words), last = of_size(Part((Size(PODS, "team-a", 2_400),)), Part((Size(SERVICES, "team-a", 3),)), unread)
    assert verdict is Verdict.WARN
    assert words == "Kubernetes is not tested with many more: 2,400 of 3,000 pods in namespace team-a"
    assert last == (Verdict.UNKNOWN, "forbidden")


def test_the_page_about_sizing_has_the_numbers_that_the_doctor_compares_with() -> None:
    page = (CHART.parents[2] / "docs" / "sizing.md").read_text()
    for resource, (namespace, cluster) in TESTED.items():
        assert f"| {resource.plural} | {namespace:,} | {cluster:,} |" in page


def queue(*, active: JsonObject | None = None, **spec: object) -> JsonObject:
    """A queue of Kueue that admits jobs, or has this condition Active."""
    known: JsonObject = {"type": "Active", "status": "True", "reason": "Ready"}
    return {"metadata": {"name": "gpus"}, "spec": spec, "status": {"conditions": [{**known, **(active or {})}]}}  # type: ignore[dict-item]


def cluster_queue(*, active: JsonObject | None = None, **spec: object) -> JsonObject:
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "l4"}]}]
    return queue(active=active, **{"resourceGroups": groups, "namespaceSelector": {}, **spec})


class TestQueues:
    LOCAL = queue(clusterQueue="training")

    def found(self, **queues: object) -> list[Finding]:
        kueue = next(api for api in APIS if api.gang == "Kueue")
        given = Queues(**{"local": Part((self.LOCAL,)), "cluster": {"training": Part((cluster_queue(),))}, **queues})  # type: ignore[arg-type]
        found = installation(gangs=Part((kueue,)), queues=given)
        return [finding for finding in findings(found) if finding.title == "queues"]

    def wrong(self, **queues: object) -> Finding:
        (finding,) = [finding for finding in self.found(**queues) if finding.verdict is not Verdict.OK]
        return finding

    def test_a_queue_that_admits_jobs_is_shown_with_how_many_wait(self) -> None:
        (finding,) = self.found()
        assert finding.verdict is Verdict.OK
        assert finding.words == "LocalQueue gpus admits jobs (ClusterQueue training)"
        waited_for = {**self.LOCAL, "status": {**self.LOCAL["status"], "pendingWorkloads": 2}}  # type: ignore[dict-item]
        (finding,) = self.found(local=Part((waited_for,)))
        assert finding.words == "LocalQueue gpus admits jobs (ClusterQueue training); 2 jobs waiting"

    def test_an_operator_that_may_not_read_flavors_is_named_with_the_remedy(self) -> None:
        kueue = next(api for api in APIS if api.gang == "Kueue")
        (finding,) = bad(installation(operator(denied="resourceflavors"), gangs=Part((kueue,))))
        assert finding.words == (
            "dtj-system/dtj may not get resourceflavors (to send pods where Kueue admitted them to; without it none "
            "starts)"
        )
        assert "bind a ClusterRole with get on resourceflavors" in finding.remedy

    def test_a_cluster_without_kueue_has_no_line(self) -> None:
        assert "queues" not in {finding.title for finding in findings(installation())}

    def test_a_namespace_without_a_queue_is_well(self) -> None:
        (finding,) = self.found(local=Part())
        assert finding.verdict is Verdict.OK
        assert "has no LocalQueue" in finding.words

    def test_what_may_not_be_read_of_a_cluster_queue_is_no_failure(self) -> None:
        (finding,) = self.found(cluster={"training": Part(unread="clusterqueues is forbidden")})
        assert finding.verdict is Verdict.OK
        assert "its selector and flavors cannot be read: clusterqueues is forbidden" in finding.words

    @pytest.mark.parametrize(
        ("reason", "behind", "words", "remedy"),
        [
            ("ClusterQueueDoesNotExist", None, "its ClusterQueue training does not exist", "create it"),
            ("Stopped", cluster_queue(), "its spec.stopPolicy is Hold", "set it to None"),
            (
                "ClusterQueueIsInactive",
                cluster_queue(
                    active={
                        "status": "False",
                        "reason": "FlavorNotFound",
                        "message": "Can't admit new workloads: references missing ResourceFlavor(s): l4.",
                    }
                ),
                "ClusterQueue training: Can't admit new workloads: references missing ResourceFlavor(s): l4",
                "create or correct what the message names",
            ),
            (
                "ClusterQueueIsInactive",
                cluster_queue(active={"status": "False", "reason": "Stopped", "message": "is stopped"}),
                "ClusterQueue training: is stopped",
                "set its spec.stopPolicy to None",
            ),
        ],
    )
    def test_a_queue_that_admits_no_job_fails_with_the_reason(
        self, reason: str, behind: JsonObject | None, words: str, remedy: str
    ) -> None:
        inactive = queue(active={"status": "False", "reason": reason}, clusterQueue="training", stopPolicy="Hold")
        cluster = {"training": Part((behind,) if behind is not None else ())}
        finding = self.wrong(local=Part((inactive,)), cluster=cluster)
        assert finding.verdict is Verdict.FAIL
        assert words in finding.words
        assert remedy in finding.remedy

    def test_a_queue_that_kueue_has_not_seen_points_at_its_manager(self) -> None:
        new: JsonObject = {"metadata": {"name": "gpus"}, "spec": {"clusterQueue": "training"}}
        assert "Kueue's manager" in self.wrong(local=Part((new,))).words

    @pytest.mark.parametrize(
        ("selector", "words"),
        [
            (None, "ClusterQueue training admits jobs of no namespace"),
            ({"matchLabels": {"team": "b"}}, "admits no job of namespace team-a"),
            ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, "admits no job"),
            ({"matchExpressions": [{"key": "owner", "operator": "Exists"}]}, "admits no job"),
        ],
    )
    def test_a_cluster_queue_that_does_not_select_the_namespace_fails(self, selector: object, words: str) -> None:
        cluster = {"training": Part((cluster_queue(namespaceSelector=selector),))}
        namespace = Part(({"metadata": {"name": "team-a", "labels": {"team": "a"}}},))
        finding = self.wrong(cluster=cluster, namespace=namespace)
        assert finding.verdict is Verdict.FAIL
        assert words in finding.words

    def test_a_flavor_whose_labels_no_node_has_warns(self) -> None:
        flavor: JsonObject = {"spec": {"nodeLabels": {"gpu": "l4"}}}
        finding = self.wrong(flavors={"l4": Part((flavor,))})
        assert finding.words == "no node has the labels of ResourceFlavor l4 of ClusterQueue training (gpu=l4)"
