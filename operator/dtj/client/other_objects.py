"""What a file holds next to jobs: other objects, which are left alone, and TFJobs, which can be converted."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, text
from dtj.client.manifest_files import Document

TFJOB_GROUP: Final = "kubeflow.org"
TFJOB: Final = "TFJob"

_MEANT_TO_BE_JOBS: Final = (names.KIND.lower(), names.PLURAL)


def is_tfjob(body: JsonObject) -> bool:
    """Whether an object is a TFJob of any version."""
    return text(body.get("apiVersion")).partition("/")[0] == TFJOB_GROUP and body.get("kind") == TFJOB


def is_other(body: JsonObject) -> bool:
    """Whether an object is of another kind, and not a job with a misspelt kind or apiVersion."""
    version, kind = text(body.get("apiVersion")), text(body.get("kind"))
    ours = version.partition("/")[0] == names.GROUP or kind.lower() in _MEANT_TO_BE_JOBS
    return bool(version and kind) and not ours


def left_alone(document: Document) -> str:
    """The note about an object of another kind."""
    return (
        f"{document.title}: {document.body['kind']}: left alone, because it is not a {names.KIND}; "
        "kubectl apply creates it"
    )


def must_be_converted(document: Document) -> str:
    """What to do with a TFJob."""
    file = document.path if document.path is not None else "-"
    return f"{document.title}: this is a TFJob of Kubeflow: convert it with: dtj convert {file} > job.yaml"
