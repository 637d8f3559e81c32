"""Fields of a job whose schema is Kubernetes' own."""

from __future__ import annotations

from typing import Final

from pydantic import GetJsonSchemaHandler, JsonValue
from pydantic_core import CoreSchema


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
