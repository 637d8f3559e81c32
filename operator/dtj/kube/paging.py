"""How many objects a page of a list has: a list in pages of bounded size, whatever the objects' size.

Users' jobs, and whatever others label as ours, may have 1.5 MiB each, and most pages have many short objects.
"""

from __future__ import annotations

from typing import Final

import aiohttp

PAGE_SIZE: Final = 500
"""Objects of one page of a list at most; kubectl and client-go ask for as many."""

MAX_PAGE_BYTES: Final = 8 * 2**20
"""A page with more bytes is not read to its end, and asked for again with an eighth of its objects. After a page that
was short enough, the next one may have twice as many."""


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
