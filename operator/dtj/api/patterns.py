"""Regular expressions as the API server reads them."""

from __future__ import annotations

import re
from typing import Final

DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""The name of a namespace, a container or a volume, which has 63 characters at most."""

CONFIG_KEY: Final = "^[-._a-zA-Z0-9]+$"
"""The key of a ConfigMap or a Secret, which has 253 characters at most."""

LABEL_KEY: Final = (
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)
"""The key of a label, such as ``topology.kubernetes.io/rack``."""


def matches(pattern: str, value: object) -> bool:
    """Whether the whole text matches; ``pattern`` begins with ``^`` and ends with ``$``.

    To Python ``$`` is also the place before a last line break, to RE2 it is the end of the text.
    """
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), str(value)) is not None
