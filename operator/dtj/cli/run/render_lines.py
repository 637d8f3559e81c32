"""A run as plain lines, for logs and pipes: two views go in, what changed between them comes out. Pure."""

from __future__ import annotations

from typing import Final

from dtj.cli.common.formatting import short_number, short_time
from dtj.local.view import RunView

_UNSAID: Final = "Pending"
"""The state that lasts for a moment and means nothing to a person."""


def change_lines(before: RunView | None, after: RunView) -> tuple[str, ...]:
    """One line for each new state, naming the replicas that are in it now, and one for each new warning."""
    known = {} if before is None else {replica.name: replica.state for replica in before.replicas}
    moved: dict[str, list[str]] = {}
    for replica in after.replicas:
        if replica.state not in (known.get(replica.name), _UNSAID):
            moved.setdefault(replica.state, []).append(replica.name)
    states = (stamped(after, f"{', '.join(names)}: {state}") for state, names in moved.items())
    return (*states, *warning_lines(before, after))


def warning_lines(before: RunView | None, after: RunView) -> tuple[str, ...]:
    """One line for each warning that no replica reported before."""
    warned = {replica.progress.warning for replica in before.replicas} if before is not None else set()
    new = dict.fromkeys(each.progress.warning for each in after.replicas if each.progress.warning not in ("", *warned))
    return tuple(stamped(after, f"warning: {warning}") for warning in new)


def progress_words(view: RunView) -> str | None:
    """How far the training is, by the first replica that knows; None where none does, or that one is past it."""
    for replica in view.replicas:
        progress = replica.progress
        if progress.step is None:
            continue
        if replica.state != "Training":
            return None
        total = progress.total_steps
        # A loop of the user's may not know how many steps there will be.
        parts = [f"step {progress.step}" + (f"/{total} ({100 * progress.step // total}%)" if total else "")]
        parts += [f"{name} {value}" for name, value in progress.metrics.items()]
        if progress.examples_per_second is not None:
            parts.append(f"{short_number(progress.examples_per_second)} examples/s")
        if progress.eta_seconds is not None:
            parts.append(f"ETA {short_time(progress.eta_seconds)}")
        return "  ".join(parts)
    return None


def stamped(view: RunView, words: str) -> str:
    """The words, after how long the run has lasted."""
    return f"{short_time(view.elapsed):>6}  {words}"
