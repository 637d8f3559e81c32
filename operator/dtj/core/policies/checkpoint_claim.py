"""The PersistentVolumeClaim for the checkpoints. It is created once, and goes with the job alone."""

from __future__ import annotations

from dtj.core import manifests
from dtj.core.actions import CreateClaim
from dtj.core.context import JobContext


def before_pods(context: JobContext) -> tuple[CreateClaim, ...]:
    """Create the claim if the job asks for one and it is not there."""
    claim = manifests.claim(context.job, context.spec)
    return (CreateClaim(claim),) if claim is not None and context.observed.claim is None else ()
