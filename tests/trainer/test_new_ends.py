"""Ends of trainings that nobody has seen: `make test-adversaries` composes them for `DTJ_ADVERSARY_SECONDS` / 5.

They begin at a seed that is drawn by chance, or at `DTJ_ADVERSARY_SEED`.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from new_samples import first_seed, seeds
from trainer.adversaries import ends, ways
from trainer.stores import store_with_bucket


@pytest.mark.timeout(4 * 3600)
def test_a_training_that_ends_at_any_operation_goes_on_to_the_same_bits_and_takes_nothing_torn_for_whole(
    record_property: Callable[[str, object], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = first_seed()
    counts: Counter[tuple[str, str]] = Counter()
    faults = []
    with ways.forking(ends.PROGRAM), store_with_bucket("s3", "ends") as store:
        whole = cache(lambda course: ends.whole(course, tmp_path / str(course), store))
        for seed in seeds(first, share=1 / 5):
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
