"""Where bytes of others become typed values: a value comes out, or :class:`Unreadable` that says why.

What an API server stores, and what a pod answers, may be anything that is JSON, and some of it is made to harm: numbers
of 5,000 digits, thousands of brackets in brackets. Whoever reads it decodes by :func:`reader`, and has one error to
expect.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

import msgspec

from dtj.api.json import JsonObject

T = TypeVar("T")

DEEPEST: Final = 128
"""Levels of brackets in brackets that are read. A decoder calls itself for each level, and Python allows it some 990.
No object of Kubernetes has 30; a schema that keeps unknown fields lets a user store 9,000."""

_TOKENS: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
"""Texts, which may hold brackets, and brackets."""

_OPENING: Final = b"[{"


class Unreadable(msgspec.DecodeError):
    """Bytes that are not what they are to be; the message says why."""


def reader(kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    """A function that decodes JSON as ``kind``, and raises nothing but Unreadable.

    What lies deeper than :data:`DEEPEST` levels is read as null.
    """
    decode = msgspec.json.Decoder(kind).decode

    def read(raw: bytes | msgspec.Raw) -> T:
        try:
            try:
                return decode(raw)
            except RecursionError:
                return decode(without_depths(bytes(raw)))
        except (ValueError, RecursionError) as error:  # a DecodeError is a ValueError, as what is not UTF-8 is
            raise Unreadable(str(error)) from error

    return read


class Once:
    """Says of each thing once that it is new: an object that cannot be read is named once, however often it changes.
    The latest thousand are remembered."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, None] = OrderedDict()

    def is_new(self, thing: Hashable) -> bool:
        """Whether this was not asked before."""
        new = thing not in self._known
        self._known[thing] = None
        self._known.move_to_end(thing)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return new


_MOST_REMEMBERED: Final = 1000


def without_depths(raw: bytes, deepest: int = DEEPEST) -> bytes:
    """JSON with null in place of each array and object below ``deepest`` levels. Takes 0.3 s for an object of 1.5 MiB
    that is nothing but brackets."""
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKENS.finditer(raw):
        sign = token[0]
        if sign[:1] == b'"':
            continue
        if sign in _OPENING:
            level += 1
            if level == deepest + 1:
                kept += raw[begin : token.start()], b"null"
        else:
            if level == deepest + 1:
                begin = token.end()
            level -= 1
    return b"".join((*kept, raw[begin:])) if level <= deepest else raw


decode_object: Final[Callable[[bytes | msgspec.Raw], JsonObject]] = reader(dict)
"""Decodes a JSON object."""
