"""A read that is refused is noted with its reason, and the others go on."""

from __future__ import annotations

from dtj.client.overview import Part, all_of, one, part
from dtj.kube.errors import Forbidden
from dtj.kube.gateway import Listing


async def refused() -> tuple[int, ...]:
    raise Forbidden("nodes is forbidden")


async def number() -> int:
    return 1


async def listing() -> Listing:
    return Listing(items=(b'{"kind": "Node"}', b"{}"), resource_version="1")


async def test_what_is_read_is_there_and_what_is_refused_says_why() -> None:
    assert await part(one(number())) == Part((1,))
    assert await part(all_of(listing())) == Part(({"kind": "Node"}, {}))
    assert await part(refused()) == Part(unread="nodes is forbidden")


async def test_a_refusal_without_words_is_not_taken_for_an_answer() -> None:
    async def silent() -> tuple[int, ...]:
        raise Forbidden("")

    assert (await part(silent())).unread != ""
