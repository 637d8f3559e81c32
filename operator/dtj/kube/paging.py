"""How many objects a page of a list has: a list in pages of bounded size, whatever the objects' size."""

from __future__ import annotations

from typing import Final

import aiohttp

FIRST_PAGE_SIZE: Final = 20
PAGE_SIZE: Final = 500
"""Objects of one page of a list, at first and at most; kubectl and client-go ask for 500. Pods of large jobs hold the
addresses of all peers, and users' jobs may have 1.5 MiB each: pages grow while they are short, and shrink again."""

PAGE_BYTES: Final = 4 * 2**20
"""A page with more bytes is followed by one of half its number of objects; it must be below a quarter to double."""


def next_limit(limit: int, size: int) -> int:
    """How many objects the next page of a list has, after one of ``size`` bytes."""
    if size > PAGE_BYTES:
        return max(1, limit // 2)
    return min(limit * 2, PAGE_SIZE) if size < PAGE_BYTES // 4 else limit


MAX_PAGE_BYTES: Final = 4 * PAGE_BYTES
"""A page with more bytes is not read to its end: long objects came after many short ones, which others may arrange."""


class PageTooLong(Exception):
    """The page must be asked for again, with fewer objects."""


async def read_page(reply: aiohttp.ClientResponse) -> bytes:
    """A page. Raises PageTooLong."""
    received = bytearray()
    async for part in reply.content.iter_any():
        received += part
        if len(received) > MAX_PAGE_BYTES:
            raise PageTooLong
    return bytes(received)


def limit_after_too_long(limit: int) -> int:
    """How many objects the page has when it is asked for again."""
    return max(1, limit // 8)
