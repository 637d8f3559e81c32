"""What all models of the specification have in common, and fields whose schema is Kubernetes' own."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema


class SpecModel(BaseModel):
    """A part of what users write: in camel case, never changed once it is read.

    Unknown fields are ignored: they come from a CRD that is newer than this operator, as after a rollback, and a field
    with a default is then in every job. Typing mistakes are refused by the CRD's schema, which the API server and
    ``dtj validate`` check.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class PodTemplateFragment:
    """Marks a field whose schema is Kubernetes' own: the one at ``path`` below PodTemplateSpec.

    :mod:`dtj.api.crd` puts the schema in. No path means the whole template.
    """

    def __init__(self, *path: str) -> None:
        self.path = path

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, JsonValue]:
        return {POD_TEMPLATE_PATH: list(self.path)}


POD_TEMPLATE_PATH: Final = "x-dtj-pod-template-path"
"""Keyword by which the models' JSON schema refers to Kubernetes' own."""

VOLUME_SOURCE: Final = ("spec", "volumes", "source")
"""The path that stands for a volume without its name."""

QUANTITY: Final = ("quantity",)
"""The path that stands for one quantity."""
