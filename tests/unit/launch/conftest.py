"""What the tests of the launcher share: launchers that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launched import Launch, Launched


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a launcher with these arguments and variables."""
    started: list[Launched] = []

    def start(*arguments: str, **environ: str) -> Launched:
        started.append(Launched(tmp_path, f"task-{len(started)}", arguments, **environ))
        return started[-1]

    yield start
    for launched in started:
        launched.end()
