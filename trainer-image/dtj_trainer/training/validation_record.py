"""What a run remembers of its validations: the values of the newest one, and the best step. Standard library only."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dtj_trainer.config.validation import KeepBest
from dtj_trainer.process.output_directories import as_json, write_atomically

RECORD = "validation.json"
"""Next to the checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is remembered next to the checkpoints."""

    step: int = 0
    """Of the newest validation; 0: there was none."""
    values: Mapping[str, float] = field(default_factory=dict)
    best_step: int | None = None
    best_value: float | None = None

    def write(self, directory: Path, keep_best: KeepBest | None) -> None:
        """Replaces what is there.

        Raises:
            OSError: the directory does not take it.
        """
        document: dict[str, object] = {"step": self.step, "values": dict(self.values)}
        if keep_best:
            best = {"metric": keep_best.metric, "mode": keep_best.mode}
            document["best"] = {**best, "step": self.best_step, "value": self.best_value}
        write_atomically(directory / RECORD, json.dumps(as_json(document), indent=2) + "\n")


def read_record(directory: Path | None, keep_best: KeepBest | None) -> Record:
    """What a run before this one has left; an empty record if there is nothing that can be used.

    The best step by another metric is none.
    """
    if directory is None:
        return Record()
    try:
        document = json.loads((directory / RECORD).read_text())
        values = {str(name): math.nan if one is None else float(one) for name, one in document["values"].items()}
        best, step = document.get("best") or {}, int(document["step"])
        found = Record(step=step, values=values)
        if keep_best and (best.get("metric"), best.get("mode")) == (keep_best.metric, keep_best.mode):
            if best["step"] is None:
                return found
            return Record(step=step, values=values, best_step=int(best["step"]), best_value=float(best["value"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return Record()
    # The best of what was validated so far is not known.
    return Record(values=values) if keep_best else found
