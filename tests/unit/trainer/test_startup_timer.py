"""The stopwatch of a task's start."""

import re
import time

from dtj_trainer.process.task_context import Startup


def test_each_part_of_the_start_is_reported_with_the_seconds_that_it_took() -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    moments = iter([now + 2.0, now + 2.5])
    startup = Startup(clock=lambda: next(moments))
    startup.lap("import")
    startup.lap("gate")
    found = re.fullmatch(r"start [\d.]+ s: import ([\d.]+), gate 0\.5", startup.summary())
    assert found is not None, startup.summary()
    assert float(found[1]) >= 2.0  # the process began before the stopwatch was made


def test_the_whole_is_the_time_since_the_process_began() -> None:
    startup = Startup()
    startup.lap("all")
    whole, part = re.findall(r"[\d.]+", startup.summary())
    assert whole == part
    assert float(whole) > 0
