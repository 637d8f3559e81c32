"""What comes in from outside, composed at random, harms nobody but the job that it is about.

A run plays the samples of SEEDS, and the rows of what was once found.
"""

import pytest

from operator_adversaries import leases, lives
from operator_adversaries.compose import compose
from operator_adversaries.found import ROWS
from operator_adversaries.judge import judge

SEEDS = range(26_000, 26_030)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_composed_at_random_harms_no_other_job(seed: int) -> None:
    sample = compose(seed)
    verdict = judge(sample)
    assert not verdict.fault, f"{verdict}\n{sample}"


@pytest.mark.parametrize("seed", range(20))
def test_what_others_write_into_a_lease_ends_no_operator_and_makes_no_second_leader(seed: int) -> None:
    election = leases.compose(seed)
    assert not list(leases.faults_of(election, leases.play(election))), election


@pytest.mark.parametrize("name", ROWS)
def test_what_was_once_found_does_no_harm(name: str) -> None:
    verdict = judge(ROWS[name])
    assert not verdict.fault, f"{verdict}\n{ROWS[name]}"


@pytest.mark.parametrize("seed", [1, 3, 6, 7, 9])
def test_a_job_to_which_several_things_happen_at_once_ends_well_and_holds_nothing_then(seed: int) -> None:
    life = lives.compose(seed)
    assert not lives.play(life), life
