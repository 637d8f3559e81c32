"""Which shard a namespace belongs to, and which shard an operator asks for."""

from __future__ import annotations

from collections import Counter

import pytest

from dtj.app.shard_leases import shard_of, shard_to_ask_for, turns_to_wait


def test_the_shard_of_a_namespace_is_the_same_in_every_process_and_version() -> None:
    """Other numbers would have two operators of different versions run the same jobs."""
    assert [shard_of(name, 3) for name in ("default", "vision", "team-a", "team-b", "")] == [1, 1, 0, 2, 1]


def test_one_shard_has_all_namespaces() -> None:
    assert {shard_of(f"team-{number}", 1) for number in range(100)} == {0}


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_shards_have_about_as_many_namespaces_each(shards: int) -> None:
    numbers = Counter(shard_of(f"team-{number}", shards) for number in range(10_000))
    assert sorted(numbers) == list(range(shards))
    assert max(numbers.values()) < 1.1 * min(numbers.values())


@pytest.mark.parametrize(
    ("holders", "asked"),
    [
        (["a", "a"], 0),
        (["b", "a", "a"], 1),
        (["a", "b", "me", "b", "b"], 1),
        (["a", "me"], None),
        (["a", "a", "me"], None),
        (["a"], None),
        (["me", "me", "a"], None),
        (["a", "a", ""], None),
        (["a", "a", None], None),
        ([], None),
    ],
)
def test_the_operator_with_the_most_shards_is_asked_if_it_has_two_more(
    holders: list[str | None], asked: int | None
) -> None:
    assert shard_to_ask_for(holders, "me") == asked


@pytest.mark.parametrize(
    ("holders", "turns"),
    [
        (["", "", ""], 0),
        ([None, "a", ""], 0),
        (["me", "", ""], 1),
        (["me", "a", ""], 1),
        (["me", "a", "a", ""], 1),
        (["me", "me", "a", ""], 2),
        (["me", "me", "me", "a", "b", "b", ""], 3),
        (["me", "me", "me", ""], 1),
    ],
)
def test_an_operator_leaves_a_free_shard_the_longer_to_others_the_more_it_holds_itself(
    holders: list[str | None], turns: int
) -> None:
    assert turns_to_wait(holders, "me") == turns
