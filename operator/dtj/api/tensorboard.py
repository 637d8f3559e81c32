"""TensorBoard beside a job."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dtj.api.base import SpecModel
from dtj.api.fragments import PodTemplateFragment
from dtj.api.json import JsonObject


class TensorBoard(SpecModel):
    """A pod and a Service that show the job's curves."""

    enabled: bool = Field(
        default=True,
        description="enabled is whether there is a TensorBoard: a pod and a Service named <job>-tensorboard, which "
        "dtj tensorboard opens. May change at any time, also after the job's end.",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="image is an image that has the command tensorboard; by default that of the containers that "
        "train. Takes effect when the pod is made.",
    )
    resources: Annotated[JsonObject, PodTemplateFragment("spec", "containers", "resources")] | None = Field(
        default=None,
        description="resources are what TensorBoard's container gets; by default it asks for 50m of a CPU and 256Mi "
        "of memory, and is limited to 2Gi. Takes effect when the pod is made.",
    )
    ttl_seconds: int = Field(
        default=3600,
        ge=0,
        le=2_147_483_647,
        description="ttlSeconds is how long TensorBoard is kept after the job's end, in seconds; 0 for not at all.",
    )
