"""Folders of data that nobody has seen: `make test-adversaries` composes them for a tenth of `DTJ_ADVERSARY_SECONDS`.

They begin at a seed that is drawn by chance, or at `DTJ_ADVERSARY_SEED`.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from new_samples import first_seed, seeds
from trainer.adversaries.attempts import compose, judge
from trainer.stores import SCHEMES, store_with_bucket


@pytest.mark.timeout(2 * 3600)
def test_each_example_of_a_new_folder_is_read_once_as_a_plain_reader_does_or_one_line_says_why_not(
    record_property: Callable[[str, object], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = first_seed()
    counts: Counter[tuple[str, str]] = Counter()
    faults = []
    with ExitStack() as stack:
        stores = [stack.enter_context(store_with_bucket(scheme, "files")) for scheme in SCHEMES]
        for name, value in {name: value for store in stores for name, value in store.environ.items()}.items():
            monkeypatch.setenv(name, value)
        for seed in seeds(first, share=1 / 10):
            (tmp_path / str(seed)).mkdir()
            monkeypatch.chdir(tmp_path / str(seed))
            store = random.Random(seed).choice((None, *stores))
            folder = compose(seed, tmp_path / str(seed), store)
            verdict = judge(folder)
            counts[f"{folder.form}, {store.scheme if store else 'folder'}", verdict.kind] += 1
            if verdict.fault:
                faults.append(f"{folder}\n  {verdict}")
            if store:
                store.clear()
    record_property("report", f"folders from seed {first} on (DTJ_ADVERSARY_SEED): {dict(counts)}")
    assert not faults, "\n".join(faults)
