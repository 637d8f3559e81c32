"""How long tests wait for a condition, on every level."""

PATIENCE_SECONDS = 300.0
"""A busy machine may stand still for many seconds, and levels run side by side. What comes early costs none of it."""


def pause_after(took: float) -> float:
    """Seconds to wait before a question is asked again that took this many.

    A test that asks by a process such as kubectl without a pause takes a processor from the pods that it waits for.
    """
    return min(max(0.02, 4 * took), 1.0)
