"""Where a job stores its checkpoints and the model that it exports."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from dtj.api import names
from dtj.api.base import SpecModel
from dtj.api.claim import ClaimTemplate
from dtj.api.fragments import VOLUME_SOURCE, PodTemplateFragment
from dtj.api.json import JsonObject


class Checkpoint(SpecModel):
    """Where and how often the trainer saves its state."""

    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="path is the checkpoint directory, which every pod gets as DTJ_CHECKPOINT_DIR. If volume "
        "or claimTemplate is set, path is the mount point and defaults to "
        f"{names.CHECKPOINT_MOUNT}.",
    )
    volume: Annotated[JsonObject, PodTemplateFragment(*VOLUME_SOURCE)] | None = Field(
        default=None,
        description="volume is a pod volume source, mounted at path in every pod. Pods on several nodes need one that "
        "all can write to.",
    )
    claim_template: ClaimTemplate | None = Field(
        default=None,
        description="claimTemplate creates one PersistentVolumeClaim, mounted at path in every pod and deleted with "
        "the job.",
    )
    every_seconds: int | None = Field(
        default=None, ge=1, description="everySeconds is the time between two checkpoints, in seconds."
    )
    every_steps: int | None = Field(
        default=None, ge=1, description="everySteps is the number of training steps between two checkpoints."
    )
    keep: int | None = Field(default=None, ge=1, description="keep is the number of newest checkpoints to keep.")

    @property
    def mounted(self) -> bool:
        """Whether the directory is a volume of its own."""
        return self.volume is not None or self.claim_template is not None

    @property
    def directory(self) -> str | None:
        """The checkpoint directory as pods see it."""
        return self.path or (names.CHECKPOINT_MOUNT if self.mounted else None)


class ExportFormat(StrEnum):
    """What a model can be exported as."""

    SAVED_MODEL = "SavedModel"
    TFLITE = "TFLite"
    TENSORFLOW_JS = "TensorFlowJS"


class Export(SpecModel):
    """Where the trained model goes, and in which forms."""

    path: str = Field(
        min_length=1,
        max_length=1024,
        description="path is the directory of the exported model (DTJ_EXPORT_DIR). Each export is a version in it, as "
        "TensorFlow Serving expects.",
    )
    formats: list[ExportFormat] = Field(
        default=[ExportFormat.SAVED_MODEL],
        min_length=1,
        max_length=len(ExportFormat),
        description="formats are SavedModel (always written), TFLite and TensorFlowJS. If a conversion fails, the job "
        "fails after the SavedModel is written.",
    )
