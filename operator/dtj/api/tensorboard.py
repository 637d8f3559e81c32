"""The TensorBoard of a job. ``spec.tensorBoard`` itself is the switch."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, JsonValue

from dtj.api.base import SpecModel
from dtj.api.fragments import PodTemplateFragment
from dtj.api.json import JsonObject, text
from dtj.api.rule import SPEC, TENSORBOARD, Rule


class TensorBoard(SpecModel):
    """A pod and a Service that show the job's curves."""

    enabled: bool | None = Field(
        default=None, description="enabled is refused: set tensorBoard to {}, or leave tensorBoard out."
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="image is an image that has the command tensorboard. Defaults to the trainer's image. A change "
        "takes effect when the pod is created.",
    )
    resources: Annotated[JsonObject, PodTemplateFragment("spec", "containers", "resources")] | None = Field(
        default=None,
        description="resources are those of TensorBoard's container. By default it requests 50m of a CPU and 256Mi, "
        "and its limit is 2Gi. A change takes effect when the pod is created.",
    )
    ttl_seconds: int = Field(
        default=3600,
        ge=0,
        le=2_147_483_647,
        description="ttlSeconds is how long TensorBoard is kept after the job ends, in seconds. 0 removes it at once.",
    )


def _shares_logs(checkpoint: JsonValue) -> bool:
    """Whether a pod that is no replica finds the checkpoint directory of the others."""
    if not isinstance(checkpoint, dict):
        return False
    volume = checkpoint.get("volume")
    if "claimTemplate" in checkpoint:
        return True
    if isinstance(volume, dict):
        return not {"emptyDir", "ephemeral"} & volume.keys()
    return "://" in text(checkpoint.get("path"))


TENSORBOARD_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel="!has(self.tensorBoard) || "
        "(has(self.checkpoint) && (has(self.checkpoint.claimTemplate) || (has(self.checkpoint.volume) ? "
        "!has(self.checkpoint.volume.emptyDir) && !has(self.checkpoint.volume.ephemeral) : "
        "has(self.checkpoint.path) && self.checkpoint.path.contains('://'))))",
        message="TensorBoard reads the logs in the checkpoint directory, so it must share that directory "
        "with the pods: set checkpoint.claimTemplate, checkpoint.volume (not emptyDir or "
        "ephemeral), or a URL as checkpoint.path",
        holds=lambda spec: not isinstance(spec.get("tensorBoard"), dict) or _shares_logs(spec.get("checkpoint")),
        field="tensorBoard",
    ),
    Rule(
        at=(TENSORBOARD,),
        cel="!has(self.enabled)",
        message="tensorBoard.enabled is no longer a switch: remove enabled to turn TensorBoard on, or remove "
        "tensorBoard to turn it off",
        holds=lambda board: board.get("enabled") is None,
        field="enabled",
    ),
)
