"""Where a job keeps what it makes: its checkpoints, and the model that it exports."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from dtj.api import names
from dtj.api.base import SpecModel
from dtj.api.fragments import VOLUME_SOURCE, PodTemplateFragment
from dtj.api.json import JsonObject


class AccessMode(StrEnum):
    """Access modes of a PersistentVolumeClaim."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class ClaimTemplate(SpecModel):
    """A PersistentVolumeClaim to make."""

    storage_class_name: str | None = Field(
        default=None,
        max_length=253,
        description="storageClassName is the storage class; the cluster's default class where it is not set.",
    )
    access_modes: list[AccessMode] = Field(
        default=[AccessMode.READ_WRITE_MANY],
        min_length=1,
        max_length=4,
        description="accessModes are the claim's access modes; pods on several nodes need ReadWriteMany.",
    )
    storage: str = Field(
        min_length=1,
        max_length=32,
        description="storage is the size of the claim, as a Kubernetes quantity such as 50Gi.",
    )


class Checkpoint(SpecModel):
    """Where and how often the trainer saves its state."""

    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="path is the checkpoint directory, given to every pod as DTJ_CHECKPOINT_DIR. "
        f"Defaults to {names.CHECKPOINT_MOUNT} where volume or claimTemplate is set, and is their mount point.",
    )
    volume: Annotated[JsonObject, PodTemplateFragment(*VOLUME_SOURCE)] | None = Field(
        default=None,
        description="volume is a pod volume source, mounted at path in every pod; "
        "with more than one node it must be one that several pods can write to.",
    )
    claim_template: ClaimTemplate | None = Field(
        default=None,
        description="claimTemplate makes one PersistentVolumeClaim for the job, mounted at path in every pod "
        "and deleted with the job.",
    )
    every_seconds: int | None = Field(
        default=None, ge=1, description="everySeconds is the time between two checkpoints, in seconds."
    )
    every_steps: int | None = Field(
        default=None, ge=1, description="everySteps is the distance of two checkpoints, in training steps."
    )
    keep: int | None = Field(default=None, ge=1, description="keep is the number of newest checkpoints that are kept.")

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
        description="path is the directory of the exported model, given to every pod as DTJ_EXPORT_DIR; each export "
        "is a version below it, as TensorFlow Serving wants it.",
    )
    formats: list[ExportFormat] = Field(
        default=[ExportFormat.SAVED_MODEL],
        min_length=1,
        max_length=len(ExportFormat),
        description="formats are what the model is exported as: SavedModel, which is always among them, TFLite and "
        "TensorFlowJS; given to every pod as DTJ_EXPORT_FORMATS. What cannot be converted fails the job once the "
        "SavedModel is there.",
    )
