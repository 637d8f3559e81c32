"""Folders of data that nobody has seen: `make test-adversaries` composes them for a tenth of `DTJ_ADVERSARY_SECONDS`.

They begin at a seed that is drawn by chance, or at `DTJ_ADVERSARY_SEED`.
"""

import itertools
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.adversaries.files import compose, judge


@pytest.mark.timeout(2 * 3600)
def test_each_example_of_a_new_folder_is_read_once_as_a_plain_reader_does_or_one_line_says_why_not(
    record_property: Callable[[str, object], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = int(os.environ.get("DTJ_ADVERSARY_SEED") or secrets.randbelow(10**9))
    end = time.monotonic() + float(os.environ.get("DTJ_ADVERSARY_SECONDS", "600")) / 10
    counts: Counter[tuple[str, str]] = Counter()
    faults = []
    for seed in itertools.count(first):
        if time.monotonic() > end:
            break
        (tmp_path / str(seed)).mkdir()
        monkeypatch.chdir(tmp_path / str(seed))
        folder = compose(seed, tmp_path / str(seed))
        verdict = judge(folder)
        counts[folder.form, verdict.kind] += 1
        if verdict.fault:
            faults.append(f"{folder}\n  {verdict}")
    record_property("report", f"folders from seed {first} on (DTJ_ADVERSARY_SEED): {dict(counts)}")
    assert not faults, "\n".join(faults)
