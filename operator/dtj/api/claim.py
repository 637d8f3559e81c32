"""The template of a PersistentVolumeClaim, as a StatefulSet has one: ``metadata`` and ``spec``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, JsonValue

from dtj.api.base import SpecModel
from dtj.api.fragments import QUANTITY, PodTemplateFragment
from dtj.api.json import JsonObject
from dtj.api.rule import CLAIM, Rule

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
    spec: ClaimSpec | None = Field(default=None, description="spec is the spec of the claim. It is required.")
    storage: str | None = Field(
        default=None, max_length=32, description="storage is refused: use spec.resources.requests.storage."
    )
    storage_class_name: str | None = Field(
        default=None, max_length=253, description="storageClassName is refused: use spec.storageClassName."
    )
    access_modes: list[str] | None = Field(
        default=None, max_length=4, description="accessModes is refused: use spec.accessModes."
    )


_FLAT: Final = ("storage", "storageClassName", "accessModes")

CLAIM_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(CLAIM,),
        cel=f"!({' || '.join(f'has(self.{field})' for field in _FLAT)})",
        message="claimTemplate is the template of a PersistentVolumeClaim: write storage as "
        "spec.resources.requests.storage, and move storageClassName and accessModes into spec",
        holds=lambda template: not any(template.get(field) is not None for field in _FLAT),
    ),
    Rule(
        at=(CLAIM,),
        cel="has(self.storage) || has(self.spec)",  # one message about one mistake
        message="the claim needs a size: set spec.resources.requests.storage, such as 50Gi",
        holds=lambda template: template.get("storage") is not None or template.get("spec") is not None,
    ),
)
