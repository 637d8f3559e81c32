"""The smallest of each kind of sample that ever did harm. None of them does today."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.tfjob.form import TFJOB
from operator_adversaries.extremes import Deep, Many, Number, Taken, Told
from operator_adversaries.sample import ALL, Answer, Delete, Edit, Ends, Make, Raises, Sample, Submit
from operator_adversaries.wire import Fault, Load

_WORLD = ("metadata", "annotations", names.Annotation.WORLD)
_OWNERS = ("metadata", "ownerReferences")
_LIMIT = ("spec", "template", "spec", "containers", 0, "resources", "limits", "x")
_ROLE_LIMIT = ("spec", "tfReplicaSpecs", "Worker", "template", *_LIMIT[2:])


def _owner(uid: object) -> tuple[dict[str, object], ...]:
    return ({"apiVersion": "a.dev/v1", "kind": "B", "name": "x", "uid": uid, "controller": True},)


def _world(generation: object, members: object) -> Told:
    return Told((("generation", generation), ("members", {"worker": members})))


def _edit(plural: str, *edits: tuple[tuple[str | int, ...], object], pick: int = 0) -> Edit:
    return Edit(1.0, plural, pick, edits)


ROWS: Final = {
    "a grace period of 2^63 seconds": Sample(acts=(Delete(1.0, "pods", 0, 2**63 - 1, 10.0**6),)),
    "a line of eight megabytes": Sample(
        acts=(Edit(1.0, "pods", 0, ((("status", "message"), Many("<", 1_400_000)),), 3),)
    ),
    "answers of many levels": Sample(
        answers=(
            Answer({"step": 7, "metrics": Deep(900, "[")}),
            Answer({"step": 7, "phase": Deep(40, "[")}),
            Answer({"step": Deep(9_000, "[")}),
        )
    ),
    "last words of 900 levels": Sample(acts=(Ends(1.0, 0, 0, {"progress": {"metrics": Deep(900, "[")}}),)),
    "the world of a pod that is no replica": Sample(shape="elastic", acts=(_edit("pods", (_WORLD, "x")),)),
    "worlds of 5,000 digits": Sample(
        shape="elastic",
        acts=(
            _edit("pods", (_WORLD, _world(1, Many("9", 5_000))), pick=1),
            _edit("pods", (_WORLD, _world(Number("9" * 5_000), "0-1")), pick=2),
        ),
    ),
    "a world of 28,000 ranges": Sample(
        shape="elastic", acts=(_edit("pods", (_WORLD, _world(1, Many("0-99999,", 28_000))), pick=1),)
    ),
    "a status of 2^53 workers": Sample(
        shape="elastic", acts=(_edit("jobs", (("status", "replicaStatuses", "worker", "desired"), 2**53)),)
    ),
    "an owner of a megabyte, pod": Sample(acts=(_edit("pods", (_OWNERS, _owner(Many("u", 1_000_000)))),)),
    "an owner of a megabyte, Service": Sample(
        acts=(Make(1.0, "services", 0, "x", ((_OWNERS, _owner(Many("u", 1_000_000))),), owned=False),)
    ),
    "a limit of 2,000 levels": Sample(acts=(Submit(1.0, "hostile", ((_LIMIT, Deep(2_000)),)),)),
    "a limit of 9,000 levels, TFJob": Sample(
        form=TFJOB.kind, acts=(Submit(1.0, "hostile", ((_ROLE_LIMIT, Deep(9_000, "[")),)),)
    ),
    "the name of another ConfigMap": Sample(
        shape="many",
        acts=(
            _edit(
                "services",
                (("metadata", "annotations", names.Annotation.CLUSTER), Taken("configmaps", 1, ("metadata", "name"))),
            ),
        ),
    ),
    "an API of gangs that fails": Sample(
        acts=(Submit(5.0, "late", ()),), faults=(Fault(-40.0, 340.0, plural="scheduling.volcano.sh", status=503),)
    ),
    "a page that names an hour": Sample(
        acts=(Submit(5.0, "late", ()),), faults=(Fault(0.0, 60.0, status=503, retry_after="3600", breaks=True),)
    ),
    "a queue that the status does not keep": Sample(
        shape="default queue",
        acts=(Submit(5.0, "late", ()),),
        faults=(Fault(-40.0, 10.0**6, verb="patch", drops="queue"),),
    ),
    "conditions of a Workload that its status does not keep": Sample(
        shape="queued", faults=(Fault(-40.0, 10.0**6, verb="patch", drops="conditions"),)
    ),
    "a list that is none": Sample(
        acts=(Submit(5.0, "late", ()),),
        faults=(Fault(0.0, 5.0, verb="list", plural="pods", status=200, body="{}", breaks=True),),
    ),
    "a watch that ends at once": Sample(
        acts=(Submit(5.0, "late", ()),),
        faults=(Fault(0.0, 5.0, verb="watch", plural="services", status=200, breaks=True),),
    ),
    "a clock of three that is an hour ahead": Sample(
        acts=(Submit(5.0, "late", ()),), faults=(Fault(0.0, 300.0, date=3600.0, every=3),)
    ),
    "a pass that raises before it plans": Sample(
        raises=(Raises("dtj.engine.controller:Controller._pass_over", 1, "ZeroDivisionError"),)
    ),
    "240 workers that are lost at once and come back alone, at 12 calls a second": Sample(
        shape="alone", acts=(Ends(1.0, ALL, 75, None), Submit(5.0, "late", ())), load=Load(240, 12.0, refuses=True)
    ),
    "240 workers of an elastic job that are deleted at once": Sample(
        shape="elastic", acts=(Delete(1.0, "pods", ALL, 30), Submit(5.0, "late", ())), load=Load(240, 12.0)
    ),
    "a job before it that cannot be forgotten": Sample(
        acts=(Submit(5.0, "late", ()),), raises=(Raises("dtj.engine.feed:JobFeed._forget", 4, "ZeroDivisionError"),)
    ),
}
