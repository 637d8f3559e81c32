"""The job that trains a function of a notebook: what :meth:`dtj.client.Client.train` submits."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject
from dtj.api.names import job_name_from
from dtj.api.strategies import Strategy
from dtj.client.code_pack import CodePack, pack
from dtj.client.function_script import Function, script_of

SCRIPT: Final = "dtj_function.py"
"""The file of the function in the pods."""


def job_of(
    function: Function,
    arguments: Mapping[str, object],
    *,
    image: str,
    workers: int,
    strategy: str | None,
    name: str | None,
    code: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    resources: Mapping[str, object],
    **fields: Mapping[str, object] | None,
) -> tuple[dict[str, object], CodePack]:
    """The manifest, whose ``fields`` are those of the spec, and the code. Raises CodeError."""
    packed = pack(code, extra={SCRIPT: script_of(function, arguments, code=code)})
    container: JsonObject = {
        "name": names.MAIN_CONTAINER,
        "image": image,
        "args": [f"--script={SCRIPT}"],
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }
    manifest: dict[str, object] = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name or f"{job_name_from(function.__name__)}-{secrets.token_hex(3)}"},
        "spec": {
            "strategy": str(strategy or (Strategy.MULTI_WORKER_MIRRORED if workers > 1 else Strategy.ONE_DEVICE)),
            "replicaSpecs": {"worker": {"replicas": workers}},
            **{key: value for key, value in fields.items() if value is not None},
            "template": {"spec": {"containers": [{**container, "resources": resources}]}},
        },
    }
    return manifest, packed
