"""The line of a pod's last words that names a Python error."""

from __future__ import annotations

import pytest

from dtj.core.outcome import error_line

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
