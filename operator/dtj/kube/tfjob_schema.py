"""Whether the API server keeps our record of a TFJob: by the schema of its CRD, of which next to nothing is decoded."""

from __future__ import annotations

from typing import Final

import msgspec

from dtj.api.tfjob.names import KIND, RECORD
from dtj.kube.client import KubeGateway
from dtj.kube.decoding import reader
from dtj.kube.gateway import TFJOBS


class _Status(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _Properties(msgspec.Struct):
    status: _Status | None = None


class _Schema(msgspec.Struct):
    properties: _Properties | None = None


class _Schemas(msgspec.Struct):
    schemas: dict[str, _Schema] = {}


class _OpenApi(msgspec.Struct):
    components: _Schemas


_decode: Final = reader(_OpenApi)


async def keeps_record(gateway: KubeGateway) -> bool:
    """Whether the CRD of TFJobs has the field for the record. Raises ApiError."""
    found = await gateway.openapi(TFJOBS, _decode)
    schemas = (schema for name, schema in found.components.schemas.items() if name.rpartition(".")[2] == KIND)
    return any(
        RECORD in schema.properties.status.properties
        for schema in schemas
        if schema.properties is not None and schema.properties.status is not None
    )
