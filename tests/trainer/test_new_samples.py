"""Samples that nobody has seen: `make test-adversaries` composes them for `DTJ_ADVERSARY_SECONDS`, 600 by default.

They begin at a seed that is drawn by chance, or at `DTJ_ADVERSARY_SEED`.
"""

from collections.abc import Callable

import pytest

from new_samples import first_seed, seeds
from trainer.adversaries import ways
from trainer.adversaries.campaign import samples, table
from trainer.adversaries.shrink import smallest


@pytest.mark.timeout(12 * 3600)
def test_new_samples_give_the_numbers_of_plain_keras_or_one_line(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    first = first_seed()
    judged = []
    with ways.forking():
        for one in samples(seeds(first)):
            judged.append(one)
            with capsys.disabled():
                print(one, flush=True)
        record_property("report", f"{len(judged)} samples from seed {first} on (DTJ_ADVERSARY_SEED)\n{table(judged)}")
        faults = [one for one in judged if one.verdict.fault]
        if faults:
            sample, verdict = smallest(faults[0].sample, faults[0].verdict)
            found = "\n".join(map(str, faults))
            pytest.fail(f"{len(faults)} faults\n{found}\nsmallest of the first: {verdict}\n{sample}\n\n{sample.source}")
