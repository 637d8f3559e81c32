"""The PersistentVolumeClaim for the checkpoints. It is created once, and goes with the job alone."""

from __future__ import annotations

from dtj.core.actions import CreateClaim
from dtj.core.context import JobContext
from dtj.core.manifests.claim import claim


def before_pods(context: JobContext) -> tuple[CreateClaim, ...]:
    """Create the claim if the job asks for one and it is not there."""
    wanted = claim(context.job, context.spec)
    return (CreateClaim(wanted),) if wanted is not None and context.observed.claim is None else ()
