"""Reads of which none fails the others: a user who may read a job may not be allowed to read its pods or its nodes."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from dtj.api.json import JsonObject
from dtj.kube.errors import ApiError
from dtj.kube.gateway import Listing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """What was read; ``unread`` is why it could not be read, in the words of the API server."""

    items: tuple[T, ...] = ()
    unread: str = ""


async def part(call: Awaitable[tuple[T, ...]]) -> Part[T]:
    """What a call returns, or why it was refused."""
    try:
        return Part(await call)
    except ApiError as error:
        return Part(unread=error.message or "the API server refused it")


async def one(call: Awaitable[T]) -> tuple[T, ...]:
    """The object that a call returns. Raises ApiError."""
    return (await call,)


async def all_of(call: Awaitable[Listing]) -> tuple[JsonObject, ...]:
    """The objects of a list. Raises ApiError."""
    return tuple(msgspec.json.decode(item, type=dict) for item in (await call).items)
