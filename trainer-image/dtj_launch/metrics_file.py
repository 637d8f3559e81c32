"""What a training measured, in the file that `DTJ_METRICS_FILE` names: `dtj report` draws its curves from it.

A line is a JSON object: `{"time": "2026-01-02T03:04:05.678+00:00", "step": 120, "metrics": {"loss": 0.41}}`. `dtj run`
sets the variable for each replica; without it nothing is written. Standard library only.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from datetime import datetime, timezone

VARIABLE = "DTJ_METRICS_FILE"
SPEED = "examples_per_second"
"""Name of the metric that says how fast the training is, over all replicas."""

_POINTS = 1000

log = logging.getLogger(__name__)


class MetricsFile:
    """Adds lines to the file. It stays small: after 1,000 points every second one is written, after 1,000 more every
    fourth, and so on."""

    def __init__(self) -> None:
        self._points = self._written = 0
        self._failed = False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds a point to each curve; a number that is not finite is none. A disk that takes no more is one warning."""
        path = os.environ.get(VARIABLE)  # now: a process that was forked has an environment of its own
        self._points += 1
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        skipped = self._points % 2 ** (self._written // _POINTS) != 0
        if not path or not finite or skipped or self._failed:
            return
        self._written += 1
        line = {"time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "step": step, "metrics": finite}
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            log.warning(f"{path}: cannot be written ({error.strerror}); the report on this run lacks its curves")
            self._failed = True
