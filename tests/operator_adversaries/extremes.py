"""Values at the edge of what an API server stores. Each prints short, however long it is."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec


@dataclass(frozen=True)
class Many:
    """A text that repeats another."""

    text: str
    times: int


@dataclass(frozen=True)
class Deep:
    """Brackets in brackets."""

    levels: int
    opening: str = '{"a":'


@dataclass(frozen=True)
class Row:
    """A list that repeats a value."""

    of: Any
    times: int


@dataclass(frozen=True)
class Told:
    """JSON within a text, as annotations have it: a value in place of each field that is named."""

    fields: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Taken:
    """What another object has at a place, when the act is carried out."""

    plural: str
    pick: int
    path: tuple[str | int, ...]


def json_text(value: Any) -> str:
    """The JSON of a value, also where no decoder would read it."""
    if isinstance(value, Deep):
        closing = {"[": "]", "{": "}"}[value.opening[0]]
        return value.opening * value.levels + ("1" if value.opening != "[" else "") + closing * value.levels
    if isinstance(value, Number):
        return value.text
    if isinstance(value, Row):
        return f"[{','.join([json_text(value.of)] * value.times)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(key)}:{json_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(json_text, value))}]"
    return msgspec.json.encode(plain(value)).decode()


@dataclass(frozen=True)
class Number:
    """A number as it is written, of as many digits as one likes."""

    text: str


def plain(value: Any) -> Any:
    """A value as a FakeGateway stores it."""
    match value:
        case Many(text, times):
            return text * times
        case Deep() | Number():
            return msgspec.Raw(json_text(value).encode())
        case Row(of, times):
            return [plain(of)] * times
        case Told(fields):
            return json_text(dict(fields))
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return value


SHORT: Final = (
    "", "x", "0", "1", "-1", "00", "1.5", "1e400", "9" * 60, "0-1", "0-99999", "true", "null", "nan", "inf", "{}",
    "[]", '{"a": 1}', "\u0663", "\u00b2", "\x1b[31m\r\n", "\u2028", "\ufffd", "\U0001f600", "a/b", "..", "%", "{role}",
    "2026-01-02T03:04:05Z", "None", "worker", "tensorboard", "Failed",
)  # fmt: skip
LONG: Final = (
    Many("9", 5_000), Many("0-99999,", 28_000), Many("x", 40_000), Many("\u00e9", 100_000), Many("[", 900),
    Many('{"a":', 2_000), Many("\x1b", 3_000), Many("a b ", 8_000), Many("(", 20_000), Many("\n", 30_000),
)  # fmt: skip
HUGE: Final = (Many("<", 1_400_000), Many("<", 200_000), Many("x", 1_000_000), Many("0,", 500_000), Many("\n", 700_000))
LABELS: Final = ("", "x", "0", "1", "007", "9" * 63, "1e3", "0x1", "a.b_c-d", "True", "2147483648", "9007199254740993")
"""What the API server takes as the value of a label."""

INTEGERS: Final = (0, 1, -1, 2, 255, 2**31 - 1, -(2**31), 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
TIMES: Final = (
    "2026-01-02T03:04:05Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:01Z", "9999-12-31T23:59:59Z",
    "2026-01-02T03:04:05.999999Z", "2038-01-19T03:14:08Z", "2026-01-02T03:04:06Z", "1677-09-21T00:12:43Z",
)  # fmt: skip
"""Times as metav1.Time writes them, in UTC and whole seconds; a MicroTime has a fraction."""


def text(rng: random.Random, *, most: int = 1_500_000, pattern: str = "") -> Any:
    """A text of at most so many bytes, which has this pattern."""
    pool: list[Any] = [*rng.choice((SHORT, SHORT, SHORT, LONG, LONG, HUGE))]
    rng.shuffle(pool)
    for found in pool:
        length = len(found.text.encode()) * found.times if isinstance(found, Many) else len(found.encode())
        if length <= most and (not pattern or re.search(pattern, plain(found)) is not None):
            return found
    return "x"


def number(rng: random.Random, *, bits: int = 64, least: float | None = None, most: float | None = None) -> int:
    """An integer that such a field holds."""
    least = -(2 ** (bits - 1)) if least is None else least
    most = 2 ** (bits - 1) - 1 if most is None else most
    edges = {int(least), int(most), *INTEGERS}
    return rng.choice(sorted(each for each in edges if least <= each <= most))


def anything(rng: random.Random) -> Any:
    """What a schema that keeps unknown fields stores."""
    return rng.choice(
        (
            None,
            True,
            0,
            -(2**63),
            2**63 - 1,
            1.5,
            1e308,
            "",
            "x",
            [],
            {},
            [{}],
            {"": {}},
            [[], {}],
            Row({}, 50_000),
            Row(0, 300_000),
            Deep(40),
            Deep(40, "["),
            Deep(130),
            Deep(900),
            Deep(950, "["),
            Deep(990, "["),
            Deep(2_000),
            Deep(9_000, "["),
            Many("<", 1_000_000),
            {"a": Many("x", 100_000)},
            {"a" * 1000: 1},
        )
    )
