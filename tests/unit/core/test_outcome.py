"""How a replica ended, in one line: what status, screens, logs and reports show."""

from __future__ import annotations

import pytest

from dtj.api.status import RootCause
from dtj.core.outcome import error_line, how_it_failed, how_replica_ended


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


TRACEBACK = """\
2026-11-23 03:34:37 INFO reading
Traceback (most recent call last):
  File "/app/train.py", line 4, in <module>
    fit()
    ^^^^^
  File "/app/helper.py", line 9, in fit
    model.fit(data)
  File "/usr/lib/python3.11/site-packages/keras/src/trainer.py", line 122, in fit
    raise ValueError(message)
ValueError: Failed to convert elements of {
'a': <tf.Tensor>
} with an unsupported type to a Tensor."""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (TRACEBACK, "helper.py:9: ValueError: Failed to convert elements of {"),
        (TRACEBACK.partition("fit()")[2], "helper.py:9: ValueError: Failed to convert elements of {"),
        ('  File "<string>", line 1, in <module>\nKeyboardInterrupt', "KeyboardInterrupt"),
        (f"{TRACEBACK}\n\nDuring handling:\n{TRACEBACK.replace('ValueError', 'KeyError')}", "helper.py:9: KeyError: "),
        ("train.py:5: TypeError: in {\nmore\nof it }", "train.py:5: TypeError: in {"),
        ("loading\nno data in /data", "no data in /data"),
        ('  File "train.py", line 3\n    print(\n', "    print("),
        ("", ""),
    ],
)
def test_the_line_with_the_error_is_found(words: str, line: str) -> None:
    assert error_line(words).startswith(line)
    assert bool(error_line(words)) == bool(line)
