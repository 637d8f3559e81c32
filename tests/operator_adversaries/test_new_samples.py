"""Samples that nobody has seen: `make test-adversaries` composes them for half of `DTJ_ADVERSARY_SECONDS`.

They begin at a seed that is drawn by chance, or at `DTJ_ADVERSARY_SEED`.
"""

from collections.abc import Callable

import pytest

from new_samples import first_seed, seeds
from operator_adversaries import leases, lives
from operator_adversaries.campaign import samples, table
from operator_adversaries.shrink import smallest


@pytest.mark.timeout(12 * 3600)
def test_what_nobody_has_seen_harms_no_other_job(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    first = first_seed()
    judged = []
    for one in samples(seeds(first, share=7 / 20)):
        judged.append(one)
        if one.verdict.fault:
            with capsys.disabled():
                print(one, flush=True)
    record_property("report", f"{len(judged)} samples from seed {first} on (DTJ_ADVERSARY_SEED)\n{table(judged)}")
    faults = [one for one in judged if one.verdict.fault]
    if faults:
        sample, verdict = smallest(faults[0].sample, faults[0].verdict)
        found = "\n".join(map(str, faults))
        pytest.fail(f"{len(faults)} faults\n{found}\nsmallest of the first: {verdict}\n{sample}")


@pytest.mark.timeout(12 * 3600)
def test_what_nobody_has_seen_in_a_lease_makes_no_second_leader(record_property: Callable[[str, object], None]) -> None:
    first, number, found = first_seed(), 0, []
    for seed in seeds(first, share=1 / 20):
        election = leases.compose(seed)
        found += [f"seed {seed}: {words}\n{election}" for words in leases.faults_of(election, leases.play(election))]
        number += 1
    record_property("report", f"{number} elections from seed {first} on (DTJ_ADVERSARY_SEED)")
    assert not found, "\n".join(found)


@pytest.mark.timeout(12 * 3600)
def test_a_life_that_nobody_has_seen_ends_well(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    first, number, found = first_seed(), 0, []
    for seed in seeds(first, share=2 / 20):
        life = lives.compose(seed)
        if wrong := lives.play(life):
            found.append((life, wrong))
            with capsys.disabled():
                print(f"seed {seed}: {wrong}", flush=True)
        number += 1
    record_property("report", f"{number} lives from seed {first} on (DTJ_ADVERSARY_SEED)")
    assert not found, f"{len(found)} of {number} lives; the smallest of the first: {lives.smallest(*found[0])}"
