"""The TensorBoard of a job."""

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
        description="enabled is whether the job has a TensorBoard: a pod and a Service named "
        "<job>-tensorboard, which dtj tensorboard opens. You can change it at any time, also "
        "after the job has ended.",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="image is an image that has the command tensorboard. Defaults to the image of the "
        "trainer containers. A change takes effect when the pod is created.",
    )
    resources: Annotated[JsonObject, PodTemplateFragment("spec", "containers", "resources")] | None = Field(
        default=None,
        description="resources are the resources of TensorBoard's container. By default it requests 50m of a "
        "CPU and 256Mi of memory, and its limit is 2Gi. A change takes effect when the pod is "
        "created.",
    )
    ttl_seconds: int = Field(
        default=3600,
        ge=0,
        le=2_147_483_647,
        description="ttlSeconds is how long TensorBoard is kept after the job ends, in seconds. 0 removes it at once.",
    )
