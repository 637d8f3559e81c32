"""How the benchmarks are asked and tell their figures. Standard library only: both environments run it."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence


def parser(description: str | None, **numbers: tuple[float, str]) -> argparse.ArgumentParser:
    """A command line whose options are numbers: of each its default, whose type is that of the option, and what it is.

    Words of an option's name are joined by underscores here, and by hyphens on the command line.
    """
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, words) in numbers.items():
        option = f"--{name.replace('_', '-')}"
        made.add_argument(option, type=type(default), default=default, help=f"{words} (default {default:,})")
    return made


def print_machine() -> None:
    """The machine's size, which every figure needs next to it."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    print(f"machine: {os.cpu_count()} cores, {gib:.0f} GiB, load {os.getloadavg()[0]:.1f}")


def print_figure(name: str, value: str) -> None:
    """One line of a report."""
    print(f"{name:<20} {value}")


def print_ratio(name: str, measured: Sequence[float], baseline: Sequence[float], *, target: float | None) -> None:
    """How a measurement compares: round by round, since a busy machine changes from one to the next.

    The fastest rounds are the ones that other work disturbed least.
    """
    each = [a / b for a, b in zip(measured, baseline, strict=True)]
    rounds = ", ".join(f"{ratio:.2f}" for ratio in each)
    of_medians = statistics.median(measured) / statistics.median(baseline)
    of_fastest = min(measured) / min(baseline)
    aim = f", target {target:g}" if target is not None else ""
    of = f"of the medians: {of_medians:.2f}, of the fastest: {of_fastest:.2f}{aim}"
    print_figure(name, f"{statistics.median(each):.2f} (rounds: {rounds}; {of})")
