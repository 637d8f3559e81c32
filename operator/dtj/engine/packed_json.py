"""JSON of jobs, compressed: an operator holds thousands of jobs, and reads few of them."""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from dtj.api.json import JsonObject

FASTEST: Final = 1
SMALLEST: Final = 9

_USUAL_WORDS: Final = (
    b'"ttlSecondsAfterFinished":"cleanPodPolicy":"Running""backoffLimit":"runPolicy":{"strategy":"ParameterServer"'
    b'"MultiWorkerMirrored""replicaSpecs":{"worker":{"replicas":"template":{"spec":{"containers":[{"name":"trainer",'
    b'"image":"command":["python","-m","resources":{"requests":{"cpu":"memory":"limits":{"nvidia.com/gpu":"env":['
    b'"volumes":["volumeMounts":["mountPath":"restartPolicy":"OnFailure"'
    b'"status":{"attempt":1,"observedGeneration":1,"replicaStatuses":{"active":0,"succeeded":0,"failed":0,"ready":0,'
    b'"restarts":{"user":0,"outOfMemory":0,"preemption":0,"disruption":0},"startTime":"readyTime":"completionTime":"'
    b'"state":"Succeeded","state":"Failed","reason":"conditions":[{"lastTransitionTime":"2026-01-01T00:00:00Z",'
    b'"message":"","observedGeneration":1,"reason":"JobFinished","status":"False","type":"PodsReady"},{"type":'
    b'"Reconciling"},"type":"Stalled"},"type":"Complete"},"type":"Failed"},"status":"True","type":"SuccessCriteriaMet"}'
    b'"metadata":{"name":"namespace":"default","uid":"resourceVersion":"generation":1,"creationTimestamp":"labels":{'
)
"""What most jobs have in common, for the compressor: the likeliest at the end. Any text would do."""


def packed(body: JsonObject, *, level: int) -> bytes:
    """The object compressed, :data:`FASTEST` or :data:`SMALLEST`; only :func:`unpacked` of this version reads it."""
    compressor = zlib.compressobj(level, zdict=_USUAL_WORDS)
    return compressor.compress(msgspec.json.encode(body)) + compressor.flush()


def unpacked(compressed: bytes) -> JsonObject:
    """The object that was packed."""
    body: JsonObject = msgspec.json.decode(zlib.decompressobj(zdict=_USUAL_WORDS).decompress(compressed))
    return body
