"""How the members of a collective send their gradients, from what all of them have announced. Pure.

TensorFlow itself takes RingReduce over gRPC for several workers, also where all have GPUs: it takes NCCL only if it is
asked for (CollectiveParamResolverLocal in collective_param_resolver_local.cc). It never says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .devices import Devices, parse

AUTO, NCCL, RING = WAYS = ("auto", "nccl", "ring")
VARIABLE = "DTJ_COMMUNICATION"
STRATEGIES = ("MultiWorkerMirrored", "Mirrored")
"""Those under which GPUs add up gradients by NCCL, or without it."""
_NAMED_AT_MOST = 8


class CommunicationError(ValueError):
    """The members cannot send each other gradients; the message says who has what, and what to do."""


def agree(heard: Mapping[str, str], *, name: str, own: Devices) -> tuple[str, str]:
    """What a task and its peers come to, each by itself: NCCL or RING, and the line for the log; see `decide`, `why`.

    Args:
        heard: name of a peer -> its words at the start gate.
        name: of this task.
        own: what this task has announced.

    Raises:
        CommunicationError: see `decide`.
    """
    announced = {peer: known for peer, words in heard.items() if (known := parse(words)) is not None}
    announced[name] = own
    chosen = decide(announced)
    return chosen, why(chosen, announced)


def decide(announced: Mapping[str, Devices]) -> str:
    """NCCL or RING.

    Args:
        announced: name of a member -> what it has, and which of WAYS it is told; of each that was heard.

    Raises:
        CommunicationError: they have different numbers of GPUs, which TensorFlow waits for in silence, other orders or
            versions; or NCCL is ordered and cannot be.
    """
    orders = {name: devices.communication or AUTO for name, devices in announced.items()}
    if len(set(orders.values())) > 1:
        raise CommunicationError(f"--communication: {_who(orders)}; give all tasks the same, by spec.communication")
    (wanted,) = set(orders.values())
    counts = {name: devices.gpus for name, devices in announced.items()}
    if len(set(counts.values())) > 1:
        raise CommunicationError(
            f"tasks that train together need as many GPUs each, but have {_who(counts)}; give chief and workers the "
            "same spec.accelerator, or hide the GPUs from all with CUDA_VISIBLE_DEVICES=-1 in env"
        )
    if not any(counts.values()):
        if wanted == NCCL:
            raise CommunicationError(
                "--communication=nccl (spec.communication: NCCL): no GPU was found; give spec.accelerator, or take auto"
            )
        return RING
    for library, versions in (
        ("TensorFlow", {name: devices.tensorflow for name, devices in announced.items() if devices.tensorflow}),
        ("NCCL", {name: devices.nccl for name, devices in announced.items() if devices.nccl}),
    ):
        if len(set(versions.values())) > 1:
            raise CommunicationError(
                f"tasks that train together on GPUs need one version of {library}, but have {_who(versions)}; use one "
                "image for chief and workers, by its digest"
            )
    if shared := _shared(announced):
        if wanted == NCCL:
            raise CommunicationError(
                f"--communication=nccl (spec.communication: NCCL): {shared} share a GPU, which NCCL cannot; give each "
                "its own, or take auto"
            )
        return RING
    return RING if wanted == RING else NCCL


def why(chosen: str, announced: Mapping[str, Devices]) -> str:
    """The choice in one line, for the log; empty where there is no GPU, and so nothing to choose."""
    gpus = sum(devices.gpus for devices in announced.values())
    if not gpus:
        return ""
    if chosen == NCCL:
        return f"communication: NCCL between {gpus} GPUs; --communication=ring (spec.communication: Ring) does without"
    shared = _shared(announced)
    reason = f"{shared} share a GPU, which NCCL cannot" if shared else "--communication=ring"
    return f"communication: ring over gRPC between {gpus} GPUs, which is slow: {reason}"


def _shared(announced: Mapping[str, Devices]) -> str:
    """Two members that have one GPU in common."""
    owners: dict[str, str] = {}
    for name, devices in announced.items():
        for identity in devices.ids:
            if owners.setdefault(identity, name) != name:
                return f"{owners[identity]} and {name}"
    return ""


def _who(values: Mapping[str, object]) -> str:
    """`2: worker 0, worker 1; none: worker 2`: the members with each value, up to a number of them."""
    groups: dict[object, list[str]] = {}
    for name, value in sorted(values.items()):
        groups.setdefault(value, []).append(name)
    return "; ".join(f"{value or 'none'}: {_names(names)}" for value, names in groups.items())


def _names(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")
