"""What ``dtj doctor`` finds of an installation in which nothing is wrong, or what a test changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from builders import NOW
from dtj import __version__
from dtj.api.crd import custom_resource_definition
from dtj.api.json import JsonObject
from dtj.cli.doctor.checks import findings
from dtj.cli.doctor.findings import Verdict
from dtj.client.installation import OF_A_PERSON, Answered, Installation, LeaseSeen, Operator, Queues
from dtj.client.overview import Part
from dtj.kube.rbac import FOR_GANGS, FOR_KUEUE, NAMESPACE_RULES


def deployment(*args: str, name: str = "dtj", replicas: int = 2, ready: int = 2) -> JsonObject:
    labels: JsonObject = {"app.kubernetes.io/version": __version__}
    container: JsonObject = {"name": "operator", "args": ["--lease-namespace=dtj-system", "--lease-name=dtj", *args]}
    return {
        "metadata": {"name": name, "namespace": "dtj-system", "labels": labels},
        "spec": {"replicas": replicas, "template": {"spec": {"serviceAccountName": "dtj", "containers": [container]}}},
        "status": {"readyReplicas": ready},
    }


def operator(
    *args: str, name: str = "dtj", ready: int = 2, renewed: float = 1, profiles: str = "", denied: str = ""
) -> Operator:
    rights = (*NAMESPACE_RULES, *FOR_KUEUE, *(right for rights in FOR_GANGS.values() for right in rights))
    answers = (Answered(right, right.path != denied, right.verbs[0]) for right in rights)
    lease = LeaseSeen("dtj-0", NOW - timedelta(seconds=renewed), moved=False)
    files = (profiles,) if profiles else ()
    return Operator(deployment(*args, name=name, ready=ready), Part((lease,)), Part(tuple(answers)), Part(files))


def node(resource: str = "", labels: JsonObject | None = None) -> JsonObject:
    return {
        "metadata": {"name": "a", "labels": labels or {}},
        "status": {"allocatable": {resource: "4"} if resource else {}},
    }


def installation(*operators: Operator, **changes: object) -> Installation:
    """One in which nothing is wrong."""
    healthy = Installation(
        server="https://api:6443",
        namespace="team-a",
        at=NOW,
        version="v1.33.1",
        served=True,
        crd=Part((custom_resource_definition(),)),
        operators=Part(operators or (operator(),)),
        rights=Part(tuple(Answered(right, allowed=True) for right in OF_A_PERSON)),
        nodes=Part((node(),)),
        quotas=Part(),
        limit_ranges=Part(),
        gangs=Part(),
        unknown_gangs=(),
        queues=Queues(),
        sizes=(),
        refusal=Part(),
    )
    return replace(healthy, **changes)  # type: ignore[arg-type]


def wrong(found: Installation) -> list[str]:
    """What the doctor says of all that is not well: verdict, title, words and remedy."""
    return [
        f"{finding.verdict} {finding.title}: {finding.words}" + (f"; do: {finding.remedy}" if finding.remedy else "")
        for finding in findings(found)
        if finding.verdict is not Verdict.OK
    ]
