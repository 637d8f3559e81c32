"""The claim that a job asks for by spec.checkpoint.claimTemplate."""

from __future__ import annotations

from builders import CLAIM_TEMPLATE, job, spec_of
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Label
from dtj.core.actions import Create, Kind
from dtj.core.manifests.metadata import claim
from support.planned import called
from world import World


def claim_of(template: JsonObject) -> JsonObject:
    of_job = job(checkpoint={"claimTemplate": template})
    made = claim(of_job, spec_of(of_job))
    assert made is not None
    return made


def test_the_claim_has_the_labels_the_annotations_and_the_spec_of_the_template() -> None:
    wanted: JsonObject = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}},
        "storageClassName": "fast",
        "volumeAttributesClassName": "gold",
        "volumeMode": "Filesystem",
        "volumeName": "disk-1",
        "selector": {"matchLabels": {"disk": "fast"}},
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "old"},
        "dataSourceRef": {"apiGroup": "example.com", "kind": "Populator", "name": "old", "namespace": "other"},
    }
    labels: JsonObject = {"team": "a", Label.JOB_NAME: "another"}
    made = claim_of({"metadata": {"labels": labels, "annotations": {"backup": "daily"}}, "spec": wanted})
    assert made["spec"] == wanted
    assert dig(made, "metadata", "annotations") == {"backup": "daily"}
    assert dig(made, "metadata", "labels", "team") == "a"
    assert dig(made, "metadata", "labels", Label.JOB_NAME) == "digits"


def test_a_claim_can_be_shared_by_nodes_unless_the_template_says_otherwise() -> None:
    made = claim_of(CLAIM_TEMPLATE)
    assert made["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    assert "annotations" not in object_at(made, "metadata")


def test_a_claim_template_makes_one_claim_before_the_pods() -> None:
    world = World(job(checkpoint={"claimTemplate": CLAIM_TEMPLATE}))
    world.step()
    begins = ["PatchStatus", "Create PersistentVolumeClaim", "Create Service", "CreatePod"]
    assert [*map(called, world.step())][:4] == begins
    assert world.taken(Create, Kind.CLAIM)
    assert world.claim is not None
    assert world.claim.name == "digits-checkpoint"
