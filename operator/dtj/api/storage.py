"""Where a job stores its checkpoints and the model that it exports."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue, WithJsonSchema

from dtj.api import names
from dtj.api.base import QUANTITY, VOLUME_SOURCE, PodTemplateFragment, SpecModel
from dtj.api.json import JsonObject

_SPEC: Final = ("spec", "volumes", "ephemeral", "volumeClaimTemplate", "spec")
"""Where PodTemplateSpec holds the spec of a claim."""


class AccessMode(StrEnum):
    """Access modes of a PersistentVolumeClaim."""

    READ_WRITE_ONCE = "ReadWriteOnce"
    READ_ONLY_MANY = "ReadOnlyMany"
    READ_WRITE_MANY = "ReadWriteMany"
    READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeMode(StrEnum):
    """Volume modes of a PersistentVolumeClaim that can be mounted as a directory."""

    FILESYSTEM = "Filesystem"


class ClaimMetadata(SpecModel):
    """What else the claim is labelled with."""

    labels: dict[str, str] | None = Field(
        default=None,
        description="labels are added to those of the claim. The operator's own take precedence.",
    )
    annotations: dict[str, str] | None = Field(
        default=None, description="annotations are the annotations of the claim."
    )


class Storage(SpecModel):
    """An amount of storage."""

    storage: Annotated[JsonValue, PodTemplateFragment(*QUANTITY)] = Field(
        description="storage is a size, as a Kubernetes quantity such as 50Gi."
    )


class ClaimResources(SpecModel):
    """The resources of a PersistentVolumeClaim."""

    requests: Storage = Field(description="requests has the size of the claim.")
    limits: Storage | None = Field(default=None, description="limits has the largest size that the claim may have.")


class ClaimSpec(SpecModel):
    """The spec of a PersistentVolumeClaim."""

    access_modes: list[AccessMode] = Field(
        default=[AccessMode.READ_WRITE_MANY],
        min_length=1,
        max_length=4,
        description="accessModes are the access modes of the claim. Pods on several nodes need ReadWriteMany.",
    )
    resources: ClaimResources = Field(
        description="resources are those of the claim: requests.storage is its size, such as 50Gi."
    )
    storage_class_name: str | None = Field(
        default=None,
        max_length=253,
        description="storageClassName is the storage class. Defaults to that of the cluster.",
    )
    volume_attributes_class_name: str | None = Field(
        default=None,
        max_length=253,
        description="volumeAttributesClassName is the VolumeAttributesClass of the claim.",
    )
    volume_mode: VolumeMode | None = Field(
        default=None,
        description="volumeMode is Filesystem: checkpoints are files.",
    )
    volume_name: str | None = Field(
        default=None, max_length=253, description="volumeName is the PersistentVolume to bind to."
    )
    selector: Annotated[JsonObject, PodTemplateFragment(*_SPEC, "selector")] | None = Field(
        default=None, description="selector selects PersistentVolumes to bind to by their labels."
    )
    data_source: Annotated[JsonObject, PodTemplateFragment(*_SPEC, "dataSource")] | None = Field(
        default=None,
        description="dataSource is the VolumeSnapshot or PersistentVolumeClaim that the volume is filled from.",
    )
    data_source_ref: Annotated[JsonObject, PodTemplateFragment(*_SPEC, "dataSourceRef")] | None = Field(
        default=None,
        description="dataSourceRef is the object, of any kind with a populator, that the volume is filled from.",
    )


class ClaimTemplate(SpecModel):
    """A PersistentVolumeClaim to create."""

    metadata: ClaimMetadata | None = Field(
        default=None, description="metadata has labels and annotations of the claim. The operator sets its name."
    )
    spec: ClaimSpec | None = Field(
        default=None,
        description="spec is that of the claim. It needs resources.requests.storage, such as 50Gi. accessModes "
        "defaults to ReadWriteMany, which pods on several nodes need, and volumeMode is Filesystem.",
    )
    storage: str | None = Field(
        default=None, max_length=32, description="storage is refused: use spec.resources.requests.storage."
    )
    storage_class_name: str | None = Field(
        default=None, max_length=253, description="storageClassName is refused: use spec.storageClassName."
    )
    access_modes: list[str] | None = Field(
        default=None, max_length=4, description="accessModes is refused: use spec.accessModes."
    )


class InMemory(SpecModel):
    """Copies of the training state in the memory of each pod that trains."""

    every_steps: int | None = Field(
        default=None,
        ge=1,
        description="everySteps is the number of training steps between two copies. By default, the trainer chooses so "
        "that copies cost at most 1 %.",
    )
    size_limit: str = Field(
        default="1Gi",
        min_length=1,
        max_length=32,
        description="sizeLimit is the memory for two copies of weights and optimizer. It counts against the memory "
        "limit of the container.",
    )


AUTO: Final = "auto"
AUTO_PATTERN: Final = f"^{AUTO}$"
_SECONDS_OR_AUTO: Final = {"x-kubernetes-int-or-string": True, "minimum": 1, "pattern": AUTO_PATTERN}


class Checkpoint(SpecModel):
    """Where and how often the trainer saves its state."""

    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="path is the checkpoint directory, which every pod gets as DTJ_CHECKPOINT_DIR; the trainer also "
        "takes an s3:// or gs:// URL. If volume or claimTemplate is set, path is the mount point and defaults to "
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
    every_seconds: Annotated[int | Literal["auto"], WithJsonSchema(_SECONDS_OR_AUTO)] | None = Field(
        default=None,
        description="everySeconds is the time between two checkpoints, in seconds. With auto, the trainer chooses it "
        "by what a checkpoint costs and how often the job lost a replica.",
    )
    every_steps: int | None = Field(
        default=None, ge=1, description="everySteps is the number of training steps between two checkpoints."
    )
    keep: int | None = Field(default=None, ge=1, description="keep is the number of newest checkpoints to keep.")
    in_memory: InMemory | None = Field(
        default=None,
        description="inMemory keeps the training state in the memory of each pod that trains too, for the others if "
        "one is lost. Only for MultiWorkerMirrored with runPolicy.restartScope Pod.",
    )

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
        description="path is the directory of the exported model (DTJ_EXPORT_DIR), or an s3:// or gs:// URL. Each "
        "export is a version in it, as TensorFlow Serving expects.",
    )
    formats: list[ExportFormat] = Field(
        default=[ExportFormat.SAVED_MODEL],
        min_length=1,
        max_length=len(ExportFormat),
        description="formats are SavedModel (always written), TFLite and TensorFlowJS. If a conversion fails, the job "
        "fails after the SavedModel is written.",
    )
