"""Balanced cuts of a chain, against all cuts that there are."""

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from dtj_trainer.pipeline_parallel.partition import balance

COSTS = st.lists(st.integers(0, 50), min_size=1, max_size=9)


def weights(costs: Sequence[int], firsts: Sequence[int]) -> list[int]:
    return [sum(costs[a:b]) for a, b in zip(firsts, [*firsts[1:], len(costs)], strict=True)]


@given(COSTS, st.data())
def test_no_other_cut_makes_the_heaviest_part_lighter(costs: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(costs)))
    every = ((0, *cuts) for cuts in combinations(range(1, len(costs)), parts - 1))
    best = min(max(weights(costs, firsts)) for firsts in every)
    assert max(weights(costs, balance(costs, parts))) == best


@given(COSTS, st.data())
def test_parts_follow_each_other_and_none_is_empty(costs: list[int], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(costs)))
    firsts = balance(costs, parts)
    assert len(firsts) == parts
    assert firsts[0] == 0
    assert list(firsts) == sorted(set(firsts))
    assert sum(weights(costs, firsts)) == sum(costs)


def test_of_several_best_cuts_the_last_is_taken() -> None:
    assert balance([5, 0, 0, 5], 2) == (0, 3)
