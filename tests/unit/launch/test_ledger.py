"""The ledger: what the time of a training went into, over all starts of its program in one container. No TensorFlow."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtj_launch import ledger, progress
from dtj_launch.ledger import Doing, Ledger
from dtj_launch.progress import DTJCallback, Phase, ProgressStore, report
from support.launched import Launch, cluster_of


class Clock:
    """One that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Container:
    """What outlives a process: the file and the clock."""

    def __init__(self, file: int) -> None:
        self.file, self.clock, self.starts = file, Clock(), -1

    def start(self) -> Ledger:
        """The next start of the program."""
        self.starts += 1
        return self.again()

    def again(self) -> Ledger:
        """Another program in the same start."""
        return Ledger(self.file, start=str(self.starts), clock=self.clock)

    def steps(self, kept: Ledger, first: int, last: int, *, seconds: float) -> None:
        """Steps that each take so long."""
        for step in range(first, last):
            self.clock.now += seconds
            kept.took(step, step + 1)


@contextmanager
def container() -> Iterator[Container]:
    file = ledger.make_file()
    assert file is not None
    try:
        yield Container(file)
    finally:
        os.close(file)


@pytest.fixture
def box() -> Iterator[Container]:
    with container() as made:
        yield made


ACTIONS = st.tuples(
    st.sampled_from(["steps", "save", "validate", "export", "die", "finish and train again"]),
    st.integers(0, 50),
    st.integers(1, 5),
)


@given(st.lists(ACTIONS, max_size=30))
def test_the_seconds_add_up_over_all_lives(actions: list[tuple[str, int, int]]) -> None:
    with container() as box:
        kept, step, exported, repeated = box.start(), 0, 0, 0
        kept.resumed(0)
        for action, seconds, number in actions:
            if action == "steps":
                box.steps(kept, step, step + number, seconds=seconds)
                step += number
            elif action == "die":
                box.clock.now += seconds
                kept, resumed = box.start(), max(0, step - number)
                kept.resumed(resumed)
                repeated, step = repeated + step - resumed, resumed
            elif action == "finish and train again":
                kept.took(step, step + number)
                step = 0
                kept.took(0, 1)
                step = 1
            else:
                doing = {"save": Doing.CHECKPOINTING, "validate": Doing.VALIDATING, "export": Doing.OTHER}[action]
                with kept.state(doing):
                    box.clock.now += seconds
                exported += seconds * (action == "export")
            document = kept.document()
            assert sum(document["seconds"].values()) == pytest.approx(box.clock.now - Clock.now - exported, abs=0.5)
            assert all(spent > 0 for spent in document["seconds"].values())
            assert document["repeatedSteps"] == repeated


def test_a_kill_repeats_the_steps_after_the_checkpoint_with_the_seconds_that_they_took(box: Container) -> None:
    kept = box.start()
    kept.resumed(0)
    box.steps(kept, 0, 1, seconds=30)
    box.steps(kept, 1, 100, seconds=1)
    with kept.state(Doing.CHECKPOINTING):
        box.clock.now += 3
    box.steps(kept, 100, 140, seconds=2)
    box.clock.now += 7  # in a step that does not end
    kept = box.start()
    box.clock.now += 5
    kept.resumed(100)
    assert kept.document() == {
        "seconds": {"starting": 30.0, "training": 99.0, "checkpointing": 3.0, "recovering": 12.0, "repeated": 80.0},
        "firstStep": 0,
        "repeatedSteps": 40,
    }
    box.steps(kept, 100, 102, seconds=2)
    assert kept.document()["seconds"] == {
        "starting": 30.0, "training": 101.0, "checkpointing": 3.0, "recovering": 14.0, "repeated": 80.0,
    }  # fmt: skip


def test_without_a_checkpoint_at_that_step_its_share_of_the_steps_counts(box: Container) -> None:
    kept = box.start()
    kept.resumed(20)
    box.steps(kept, 20, 21, seconds=30)
    box.steps(kept, 21, 60, seconds=2)
    kept = box.start()
    kept.resumed(40)
    # Of 78 s for 40 steps.
    assert kept.document() == {
        "seconds": {"starting": 30.0, "training": 39.0, "repeated": 39.0}, "firstStep": 20, "repeatedSteps": 20,
    }  # fmt: skip


def test_the_checkpoint_before_the_newest_is_as_exact_however_many_starts_it_takes(box: Container) -> None:
    kept = box.start()
    kept.resumed(0)
    for at in (10, 20):
        box.steps(kept, at - 10, at, seconds=at)
        with kept.state(Doing.CHECKPOINTING):
            pass
    box.steps(kept, 20, 25, seconds=1)
    for resumed in (20, 10):
        kept = box.start()
        kept.resumed(resumed)
    # The first of the ten steps is the start.
    assert kept.document()["seconds"] == {"starting": 10.0, "training": 90.0, "repeated": 205.0}
    assert kept.document()["repeatedSteps"] == 15


def test_who_ends_before_its_first_step_still_starts_at_the_next_start(box: Container) -> None:
    box.start()
    box.clock.now += 8
    kept = box.start()
    kept.resumed(0)
    box.clock.now += 1
    kept.took(0, 1)
    assert kept.document() == {"seconds": {"starting": 9.0}, "firstStep": 0, "repeatedSteps": 0}


def test_another_program_of_the_same_start_repeats_nothing(box: Container) -> None:
    kept = box.start()
    box.steps(kept, 0, 100, seconds=1)
    kept = box.again()
    box.steps(kept, 0, 50, seconds=1)
    assert kept.document()["repeatedSteps"] == 0
    kept = box.start()
    kept.resumed(25)
    assert kept.document()["repeatedSteps"] == 25
    assert kept.document()["seconds"]["repeated"] == pytest.approx(49 / 2, abs=0.1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 16,
        bytes(range(100, 200)),
        ledger._MOMENT.pack(5, 1e9) + b"{}\n",
        ledger._MOMENT.pack(5, 1000.0) + b'{"doing": "training", "since": NaN}\n',
        ledger._MOMENT.pack(5, float("nan")) + b"[]\n",
    ],
)
def test_a_file_that_cannot_be_used_counts_as_none(box: Container, content: bytes) -> None:
    os.pwrite(box.file, content, 0)
    kept = box.start()
    box.clock.now += 2
    kept.took(7, 8)
    assert kept.document() == {"seconds": {"starting": 2.0}, "firstStep": 7, "repeatedSteps": 0}
    box.steps(kept, 8, 10, seconds=1)
    kept = box.start()
    kept.resumed(9)
    assert kept.document()["repeatedSteps"] == 1


def test_a_file_that_takes_nothing_does_no_harm(box: Container) -> None:
    gone = os.dup(box.file)
    kept = Ledger(gone, clock=box.clock)
    os.close(gone)
    box.steps(kept, 0, 3, seconds=1)
    assert kept.document()["seconds"] == {"starting": 1.0, "training": 2.0}


@pytest.mark.parametrize("given", ["", "x", "1:2:3", "-1:0:0", "0:0", "9999999999:1:1"])
def test_a_variable_that_names_no_such_file_counts_as_none(given: str) -> None:
    kept = Ledger.kept({ledger.VARIABLE: given})
    kept.took(0, 1)
    assert kept.document()["firstStep"] == 0


REPORTING = (
    "import json, os, signal\n"
    "from dtj_launch import progress\n"
    "resumed, last = (0, 30) if os.environ['DTJ_RESTARTS_IN_PLACE'] == '0' else (20, 40)\n"
    "for step in range(resumed, last + 1): progress.report(step=step)\n"
    "if last == 30: os.kill(os.getpid(), signal.SIGKILL)\n"
    "print(json.dumps(progress._publisher.store.document()))\n"
)


def test_the_launcher_keeps_the_sums_of_a_program_that_was_killed(launch: Launch) -> None:
    launched = launch("--own-gate", "--", sys.executable, "-c", REPORTING, TF_CONFIG=cluster_of(2)[0], DTJ_ATTEMPT="3")
    assert launched.wait() == 0
    document = json.loads(launched.out.read_text())
    assert (document["attempt"], document["restartsInPlace"]) == (3, 1)
    assert document["repeatedSteps"] == 10
    assert document["firstStep"] == 0
    assert document["seconds"]["recovering"] > 0


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> tuple[ProgressStore, Clock]:
    clock = Clock()
    store = ProgressStore(Ledger(clock=clock))
    monkeypatch.setattr(progress._publisher, "store", store)
    return store, clock


def test_the_callback_tells_the_steps_of_fit_from_its_validations(shown: tuple[ProgressStore, Clock]) -> None:
    (store, clock), callback = shown, DTJCallback()
    other = DTJCallback()
    for each in (callback, other):
        each.set_params({"steps": 10, "epochs": 2})
        each.on_train_begin()
        each.on_epoch_begin(1)
    clock.now += 20
    for batch in range(10):
        clock.now += 1
        for each in (callback, other):
            each.on_train_batch_end(batch)
    for each in (callback, other):
        each.on_test_begin()
    clock.now += 4
    for each in (callback, other):
        each.on_test_end()
    clock.now += 2
    callback.on_epoch_end(1)
    callback.on_train_end()
    clock.now += 100
    document = store.document()
    assert document["seconds"] == {"starting": 21.0, "training": 11.0, "validating": 4.0}
    assert (document["firstStep"], document["step"], document["repeatedSteps"]) == (10, 20, 0)


def test_a_fit_that_does_not_know_its_first_step_says_none(shown: tuple[ProgressStore, Clock]) -> None:
    callback = DTJCallback()
    callback.on_train_begin()
    callback.on_epoch_begin(3)
    callback.on_train_batch_end(0)
    assert "firstStep" not in shown[0].document()


def test_a_script_that_says_nothing_of_its_steps_is_not_taken_for_one_that_starts(
    shown: tuple[ProgressStore, Clock],
) -> None:
    store, clock = shown
    clock.now += 5
    assert store.document()["seconds"] == {"starting": 5.0}
    store.update(phase=Phase.TRAINING)
    assert "seconds" not in store.document()
    report(step=0)
    assert store.document()["seconds"] == {"starting": 5.0}


def test_a_task_that_does_not_lead_shows_no_ledger() -> None:
    assert "seconds" not in ProgressStore().document()
