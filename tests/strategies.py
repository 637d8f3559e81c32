"""What hypothesis draws: manifests that are valid, and objects that need not be."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from builders import CLAIM_TEMPLATE, manifest, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.spec import ELASTIC, Strategy

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,39}[a-z0-9])?", fullmatch=True)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)

_SPEC_FIELDS = (
    "strategy",
    "template",
    "replicaSpecs",
    "accelerator",
    "port",
    "checkpoint",
    "export",
    "tensorBoard",
    "runPolicy",
)


@st.composite
def roles(draw: st.DrawFn, strategy: Strategy) -> dict[str, int]:
    """Replicas by role that the rules allow for a strategy."""
    data_workers = draw(st.integers(0, 2))
    others = {"evaluator": draw(st.integers(0, 1)), "dispatcher": min(data_workers, 1), "data-worker": data_workers}
    chief = draw(st.integers(0, 1))
    if strategy in (Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE):
        return {"chief": chief, "worker": 1 - chief, **others}
    workers = draw(st.integers(2 if strategy is Strategy.PIPELINE else 1, 12))
    if strategy is Strategy.PARAMETER_SERVER:
        return {"chief": chief, "worker": workers, "ps": draw(st.integers(1, 4)), **others}
    return {"chief": chief, "worker": workers, **others}


_LIVELY_POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "scheduling": st.sampled_from(
            [
                {},
                {"queue": "a"},
                {"gang": "Kueue", "queue": "a"},
                {"gang": "Native"},
                {"gang": "Volcano"},
                {"gang": "Coscheduling", "minAvailable": 1},
            ]
        ),
        "onOutOfMemory": st.just({"increasePercent": 50, "maxMemory": "4Gi"}),
    },
)
_STALLS = st.sampled_from(
    [{}, *({"stallTimeoutSeconds": 40, "onStall": action} for action in ("None", "Restart", "Fail"))]
)


@st.composite
def jobs(draw: st.DrawFn, *, lively: bool = False) -> Job:
    """A valid job of any strategy but TPU, whose topology fixes its replicas.

    A lively one may besides be elastic, wait for its gang, be watched for stalls, and have a TensorBoard.
    """
    strategy = draw(st.sampled_from([s for s in Strategy if s is not Strategy.TPU]))
    policy = {
        "successPolicy": draw(st.sampled_from(["Chief", "AllWorkers"])),
        "cleanPodPolicy": draw(st.sampled_from(["Running", "All", "None"])),
        "backoffLimit": draw(st.integers(0, 3)),
        "restartScope": draw(st.sampled_from(["Auto", "Auto", "Pod", "Job"])),
        **draw(st.fixed_dictionaries({}, optional={"disruptionLimit": st.integers(0, 3)})),
    }
    elastic = checkpoint = None
    if lively:
        checkpoint = draw(st.sampled_from([None, {"claimTemplate": CLAIM_TEMPLATE}]))
        policy |= {**draw(_LIVELY_POLICIES), **draw(_STALLS)}
        elastic = {"maxReplicas": 12} if strategy in ELASTIC and draw(st.booleans()) else None
    body = manifest(
        draw(NAMES),
        strategy=strategy,
        roles=draw(roles(strategy)),
        elastic=elastic,
        checkpoint=checkpoint,
        tensorBoard={"ttlSeconds": 100} if checkpoint is not None and draw(st.booleans()) else None,
        port=draw(st.integers(1024, 65535).filter(lambda port: port != 2223)),
        runPolicy=policy,
    )
    return Job.from_object(stored(body, namespace=draw(NAMES)))


TIME = "2026-01-02T03:04:05Z"
_WORDS = st.sampled_from(["Rescaling", "", "worker", "Running", "UserError", "Kueue", "NewAttempt"])
"""Words of this operator, and of one that is newer."""

_CONDITIONS = st.fixed_dictionaries(
    {
        "type": st.sampled_from([*Condition, "Rescaled"]) | st.text(max_size=9),
        "status": st.sampled_from(["True", "False", "Unknown"]) | JSON,
    },
    optional={"reason": _WORDS, "message": st.text(max_size=9), "lastTransitionTime": st.sampled_from([TIME, ""])},
)


@st.composite
def stored_objects(draw: st.DrawFn) -> JsonObject:
    """Any object that a server with some other version of the CRD could hold, most of them nearly ours."""
    body: dict[str, Any] = stored(manifest(draw(NAMES), strategy=draw(st.sampled_from(list(Strategy)))))
    spec = body["spec"]
    for field in draw(st.lists(st.sampled_from(_SPEC_FIELDS), max_size=3)):
        spec[field] = draw(JSON)
    if draw(st.booleans()):
        spec["replicaSpecs"] = draw(
            st.dictionaries(
                st.sampled_from(["worker", "chief", "ps", "evaluator", "dispatcher", "data-worker", "gpu", ""]),
                st.none() | st.fixed_dictionaries({}, optional={"replicas": st.integers(-2, 3), "env": JSON}),
                max_size=4,
            )
        )
    body["status"] = draw(
        JSON
        | st.fixed_dictionaries(
            {},
            optional={
                "conditions": JSON | st.lists(_CONDITIONS, max_size=4),
                "state": _WORDS,
                "reason": _WORDS,
                "gang": _WORDS,
                "pendingRestart": st.fixed_dictionaries({}, optional={"kind": _WORDS, "role": _WORDS, "pod": _WORDS}),
                "rootCause": st.fixed_dictionaries({}, optional={"kind": _WORDS, "role": _WORDS}),
                "attempt": JSON,
                "startTime": JSON,
                "replicaStatuses": st.dictionaries(
                    st.sampled_from(["worker", "other"]),
                    st.fixed_dictionaries({"completedIndexes": st.text(max_size=6)}),
                ),
            },
        )
    )
    return body
