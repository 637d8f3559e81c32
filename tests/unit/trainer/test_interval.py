"""How many steps lie between two copies in memory, and how much time between two checkpoints: as many that they cost at
most 1 % of the training."""

import math
from collections.abc import Sequence

import pytest

from dtj_trainer.checkpoint.interval import (
    FIRST_STEPS,
    SHARE,
    Cost,
    CostOfCopies,
    CostOfSaves,
    describe_saves,
    seconds_between_saves,
)
from dtj_trainer.config.parsing import parse

PROCESSORS = 2


class Training:
    """Steps and copies on a clock of its own."""

    def __init__(self, *, step_seconds: float) -> None:
        self.now = 0.0
        self._step_seconds = step_seconds
        self._step = 0
        self._written = 0.0
        self._cost = CostOfCopies(processors=PROCESSORS, clock=lambda: self.now)

    def copy(self, *, reading: float, writing: float) -> Cost | None:
        """Ten steps, slowed down by the thread that writes the copy before, and then a copy."""
        self.now += FIRST_STEPS * self._step_seconds + self._written / PROCESSORS
        self._step += FIRST_STEPS
        for part in (0.25, 0.75):
            with self._cost.taking():
                self.now += part * reading
        found = self._cost.copied(self._step, writing=self._written)
        self._written = writing
        return found


def measured(readings: Sequence[float], *, step_seconds: float, writing: float = 0.0) -> Cost:
    """What is found once it is known, which is after the last of these copies."""
    training = Training(step_seconds=step_seconds)
    *before, found = [training.copy(reading=each, writing=writing) for each in readings]
    assert before == [None] * len(before)
    assert found is not None
    return found


def test_what_the_loop_waits_for_counts_and_the_thread_that_writes_by_its_share_of_the_processors() -> None:
    cost = measured([0.003] * 5, step_seconds=0.009, writing=0.004)
    assert cost.copy_seconds == pytest.approx(0.005)
    assert cost.step_seconds == pytest.approx(0.009)


def test_the_first_copy_which_traces_does_not_count_nor_does_one_that_was_disturbed() -> None:
    assert measured([0.5, 0.002, 0.002, 0.3, 0.002], step_seconds=0.009).copy_seconds == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("copy_ms", "step_ms", "steps"),
    [(0, 9, 10), (1, 1000, 10), (1, 9.9, 10), (1, 9.8, 20), (5, 9, 100), (10, 13, 100), (3000, 1, 500_000)],
)
def test_copies_cost_at_most_a_hundredth_at_the_next_round_number_of_steps(
    copy_ms: float, step_ms: float, steps: int
) -> None:
    cost = Cost(copy_seconds=copy_ms / 1e3, step_seconds=step_ms / 1e3)
    assert cost.least_steps == steps
    assert cost.share(steps) <= SHARE
    assert steps == FIRST_STEPS or cost.share(steps * 2 // 5) > SHARE


def test_the_line_names_the_interval_and_what_it_costs() -> None:
    assert Cost(copy_seconds=0.0102, step_seconds=0.0131).describe(10) == (
        "a copy in memory after every 10 steps costs 7.2 % of the training (10.2 ms a copy, 13.1 ms a step)"
    )


@pytest.mark.parametrize(
    ("cost", "losses", "seconds"),
    [
        (2, 14 * 3600, math.sqrt(2 * 2 * 14 * 3600)),
        (2, math.inf, math.sqrt(2 * 2 * 24 * 3600)),
        (2, 600, math.sqrt(2 * 2 * 600)),
        (2, 60, 20),
        (0, 600, 10),
        (30, math.inf, 3000),
        (100, math.inf, 3600),
    ],
    ids=["young", "no loss is known", "many losses", "10 % of many losses", "least", "1 % without a loss", "most"],
)
def test_the_time_between_checkpoints_wastes_least_within_what_they_may_cost(
    cost: float, losses: float, seconds: float
) -> None:
    assert seconds_between_saves(cost, losses) == pytest.approx(seconds)


def test_the_launcher_says_how_many_of_its_restarts_in_place_were_losses() -> None:
    config = parse((), {"DTJ_RESTARTS_IN_PLACE": "3", "DTJ_LOSSES_IN_PLACE": "1"})
    assert (config.restarts_in_place, config.losses_in_place) == (3, 1)


def test_a_checkpoint_costs_what_the_loop_waits_for_its_look_at_the_weights_and_its_values() -> None:
    now = 0.0
    cost = CostOfSaves(clock=lambda: now)

    def take(seconds: float) -> None:
        nonlocal now
        with cost.taking():
            now += seconds

    def save(look: float, read: float) -> float | None:
        cost.begins()
        take(look)
        take(read)
        return cost.saved()

    assert save(3.0, 4.0) is None  # traces
    assert save(0.5, 1.0) == pytest.approx(1.5)
    cost.begins()
    take(9.0)  # a look for a copy in memory
    assert save(1.0, 1.5) == pytest.approx(2.0)
    assert save(0.5, 20.0) == pytest.approx(2.5)


def test_the_line_says_what_the_choice_is_made_of() -> None:
    assert describe_saves(420, 1.8, 14 * 3600) == (
        "checkpoints every 420 s: a save costs 1.8 s, and this job lost a replica every 14 h"
    )
    assert describe_saves(41.6, 0.01, math.inf) == (
        "checkpoints every 42 s: a save costs 10 ms, and no loss is known: one a day is assumed"
    )
    assert describe_saves(10, 0, 600).endswith("every 10 min")
