"""Ends of trainings that nobody has seen: `make test-adversaries` composes them for `DTJ_ADVERSARY_SECONDS` / 5.

They begin at a seed that is drawn by chance, or at `DTJ_ADVERSARY_SEED`.
"""

import itertools
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from trainer.adversaries import ends
from trainer.stores import store_with_bucket


@pytest.mark.timeout(4 * 3600)
def test_a_training_that_ends_at_any_operation_goes_on_to_the_same_bits_and_takes_nothing_torn_for_whole(
    record_property: Callable[[str, object], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = int(os.environ.get("DTJ_ADVERSARY_SEED") or secrets.randbelow(10**9))
    counts: Counter[tuple[str, str]] = Counter()
    faults = []
    with ends.forking(), store_with_bucket("s3", "ends") as store:
        whole = cache(lambda course: ends.whole(course, tmp_path / str(course), store))
        end = time.monotonic() + float(os.environ.get("DTJ_ADVERSARY_SECONDS", "600")) / 5
        for seed in itertools.count(first):
            if time.monotonic() > end:
                break
            composed = ends.compose(seed, whole)
            verdict = ends.judge(composed, whole(composed.course), tmp_path / f"seed-{seed}", store)
            counts[str(composed.course), verdict.kind] += 1
            with capsys.disabled():
                print(f"{composed}: {verdict}", flush=True)
            if verdict.fault:
                faults.append(f"{composed}\n  {verdict}")
            shutil.rmtree(tmp_path / f"seed-{seed}", ignore_errors=True)
            store.clear()
    record_property("report", f"ends from seed {first} on (DTJ_ADVERSARY_SEED): {dict(counts)}")
    assert not faults, "\n".join(faults)
