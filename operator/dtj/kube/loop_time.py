"""The clock of durations: that of the event loop, which never goes back, and which tests may replace."""

from __future__ import annotations

import asyncio


def loop_time() -> float:
    """Seconds since an arbitrary moment, by the clock of the running event loop."""
    return asyncio.get_running_loop().time()
