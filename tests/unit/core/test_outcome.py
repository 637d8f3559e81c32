"""How a replica ended, in one line: what status, screens, logs and reports show."""

from __future__ import annotations

import pytest

from dtj.api.status import RootCause
from dtj.core.outcome import how_it_failed, how_replica_ended


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (RootCause(exit_code=3), "exited with code 3"),
        (RootCause(exit_code=3, reason="Error"), "exited with code 3"),
        (RootCause(exit_code=137, signal=9), "exited with code 137 (SIGKILL)"),
        (RootCause(exit_code=137, signal=9, reason="OOMKilled"), "exited with code 137 (SIGKILL, OOMKilled)"),
        (RootCause(exit_code=159, signal=999), "exited with code 159 (signal 999)"),
        (RootCause(reason="Evicted"), "failed (Evicted)"),
        (RootCause(), "failed"),
    ],
)
def test_an_end_has_its_exit_code_its_signal_and_its_reason(cause: RootCause, words: str) -> None:
    assert how_replica_ended(cause) == words


def test_a_failure_has_the_replica_its_pod_its_end_and_its_last_words() -> None:
    cause = RootCause(role="worker", index=1, pod="digits-worker-1", exit_code=3, reason="Error", message="no data")
    assert how_it_failed(cause) == "worker-1 (pod digits-worker-1) exited with code 3: no data"
