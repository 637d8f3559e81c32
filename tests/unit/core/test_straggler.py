"""Which replicas are slower than their peers."""

from __future__ import annotations

from dtj.core.observed import Straggler
from dtj.core.policies.straggler import MIN_STEPS, Reading, slow


def at(moment: float, **steps: int) -> dict[str, Reading]:
    return {name: Reading(moment, step, None) for name, step in steps.items()}


def own(**seconds: float) -> dict[str, Reading]:
    return {name: Reading(0.0, 5, each) for name, each in seconds.items()}


class TestWhoIsSlow:
    def test_one_whose_own_part_of_a_step_takes_longer(self) -> None:
        (found,) = slow({}, own(a=1.0, b=1.1, c=2.2, d=1.1), in_step=True)
        assert (found.hostname, found.times) == ("c", 2.0)

    def test_a_little_slower_is_not_slow(self) -> None:
        assert slow({}, own(a=1.0, b=1.0, c=1.5), in_step=True) == ()

    def test_of_two_nobody_can_be_slower_than_the_others(self) -> None:
        assert slow({}, own(a=1.0, b=9.0), in_step=True) == ()

    def test_where_each_steps_on_its_own_the_steps_are_evidence(self) -> None:
        found = slow(at(0, a=0, b=0, c=0), at(30, a=60, b=60, c=20), in_step=False)
        assert found == (Straggler("c", 3.0),)

    def test_where_all_go_at_one_pace_the_steps_are_no_evidence(self) -> None:
        assert slow(at(0, a=0, b=0, c=0), at(30, a=60, b=60, c=20), in_step=True) == ()

    def test_one_that_does_no_step_at_all_is_slow(self) -> None:
        (found,) = slow(at(0, a=0, b=0, c=7), at(30, a=30, b=30, c=7), in_step=False)
        assert (found.hostname, found.times) == ("c", 30.0)

    def test_of_few_steps_nothing_is_known(self) -> None:
        some = MIN_STEPS - 1
        assert slow(at(0, a=0, b=0, c=0), at(30, a=some, b=some, c=1), in_step=False) == ()

    def test_one_that_started_again_is_not_compared(self) -> None:
        assert slow(at(0, a=0, b=0, c=900), at(30, a=60, b=60, c=2), in_step=False) == ()
