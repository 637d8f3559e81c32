"""Where to cut a chain so that no part is much heavier than the others. Pure."""

from collections.abc import Sequence
from itertools import accumulate


def balance(costs: Sequence[float], parts: int) -> tuple[int, ...]:
    """Cuts a chain into this many parts, none empty, so that the heaviest is as light as it can be.

    Args:
        costs: of the links, in order; none below 0.
        parts: from 1 to as many as there are links.

    Returns:
        The index of the first link of each part: the first is 0.
    """
    segments = len(costs)
    until = [0, *accumulate(costs)]
    # heaviest[i]: of the best way to cut the first i links into as many parts as there were rounds.
    heaviest = until[:]
    begins: list[list[int]] = []
    for part in range(1, parts):
        begin, better = [0] * (segments + 1), heaviest[:]
        for end in range(part + 1, segments + 1):
            # Of several best cuts the last: what costs nothing, such as a pooling layer, tends to make less to send.
            begin[end] = min(
                range(end - 1, part - 1, -1), key=lambda first: max(heaviest[first], until[end] - until[first])
            )
            better[end] = max(heaviest[begin[end]], until[end] - until[begin[end]])
        heaviest = better
        begins.append(begin)
    firsts = [segments]
    for begin in reversed(begins):
        firsts.append(begin[firsts[-1]])
    return (0, *reversed(firsts[1:]))
