"""What keeps a pod from starting, read from the words that the scheduler and the kubelet leave in its status.

The kubelet has many words for few troubles, and takes turns with some of them (ErrImagePull and ImagePullBackOff, at
every attempt). Here they become one reason with one text, so that a status that repeats them does not flap.
"""

from __future__ import annotations

import re
from typing import Final

from dtj.api.names import Reason
from dtj.core.observed import Blocker
from dtj.kube.records import PodRecord

_REASONS: Final = {
    "ErrImagePull": Reason.IMAGE_PULL_FAILED,
    "ImagePullBackOff": Reason.IMAGE_PULL_FAILED,
    "InvalidImageName": Reason.IMAGE_PULL_FAILED,
    "ErrImageNeverPull": Reason.IMAGE_PULL_FAILED,
    "ImageInspectError": Reason.IMAGE_PULL_FAILED,
    "RegistryUnavailable": Reason.IMAGE_PULL_FAILED,
    "SignatureValidationFailed": Reason.IMAGE_PULL_FAILED,
    "CreateContainerConfigError": Reason.CONTAINER_CONFIG_ERROR,
    "CreateContainerError": Reason.CONTAINER_CONFIG_ERROR,
    "RunContainerError": Reason.CONTAINER_CONFIG_ERROR,
}
"""The kubelet's reasons why a container waits that do not pass by themselves (kubernetes, pkg/kubelet/images and
pkg/kubelet/kuberuntime)."""

_BACK_OFF: Final = re.compile(r'Back-off pulling image "[^"]*": (?:[A-Za-z]+: )?(?=.)')
"""What the kubelet puts before the error of the latest pull while it waits for the next (since Kubernetes 1.32)."""

_LONGEST_TEXT: Final = 1024


def blocker_of(record: PodRecord, *, main_container: str) -> Blocker | None:
    """What keeps the pod from starting; None if nothing does, or nothing is reported yet."""
    if record.unschedulable is not None:
        return Blocker(Reason.UNSCHEDULABLE, _text(record.unschedulable))
    for container, waiting in record.waiting:
        reason = _REASONS.get(waiting.reason)
        if reason is not None:
            where = f"container {container}: " if container != main_container else ""
            return Blocker(reason, _text(f"{where}{_BACK_OFF.sub('', waiting.message) or waiting.reason}"))
    return None


def _text(words: str) -> str:
    """One line, of a length that a person reads."""
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
