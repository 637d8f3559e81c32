"""The ledger of a job's time adds up, whatever pods say of theirs."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import NOW
from dtj.api.goodput import TOLD, Goodput, Seconds, Sums, Use
from dtj.core.policies.goodput import Report, carried_on, spent

_SUMS = st.dictionaries(st.sampled_from(sorted(TOLD)), st.one_of(st.integers(0, 60), st.just(10**11)))
_STEPS = st.integers(0, 100)
_REPORTS = st.builds(
    Report,
    pod=st.sampled_from(["a", "b"]),
    sums=st.builds(
        Sums,
        seconds=st.builds(Seconds.of, _SUMS),
        first_step=st.none() | _STEPS,
        repeated_steps=_STEPS | st.just(2**53),
    ),
    step=st.none() | _STEPS,
    checkpoint_step=st.none() | _STEPS,
)
_WRITES = st.lists(
    st.tuples(
        st.integers(0, 60), st.sampled_from(list(Use)), st.none() | _REPORTS, st.booleans(), st.sampled_from([0, 60])
    ),
    max_size=12,
)


@given(_WRITES)
@settings(max_examples=500)
def test_each_second_goes_to_one_thing_and_stays_there_unless_its_steps_are_repeated_or_it_was_a_hang(
    writes: list[tuple[int, Use, Report | None, bool, int]],
) -> None:
    ledger, lifetime = Goodput(), 0
    for passed, use, report, again, wait in writes:
        lifetime += passed
        before, now = ledger, NOW + timedelta(seconds=lifetime)
        ledger = carried_on(before, use, lifetime, report, now=now, again=again, wait=wait)
        assert Goodput.model_validate(ledger.model_dump()) == ledger, "within the bounds of the schema"
        assert lifetime - wait <= ledger.seconds.total <= lifetime
        assert ledger.updated_at == (NOW + timedelta(seconds=ledger.seconds.total)).strftime("%Y-%m-%dT%H:%M:%SZ")
        was, is_ = before.seconds.by_use(), ledger.seconds.by_use()
        assert all(is_[each] >= was[each] for each in Use if each is not Use.TRAINING)
        taken_back = is_[Use.REPEATED] - was[Use.REPEATED] + is_[Use.RECOVERING] - was[Use.RECOVERING]
        assert is_[Use.TRAINING] + taken_back >= was[Use.TRAINING]
        assert all(spent(ledger)[each] >= number for each, number in spent(before).items()), "a metric never falls"
        assert before.repeated_steps <= ledger.repeated_steps <= 10_000 * lifetime


@given(st.lists(st.tuples(st.floats(0, 12), st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=40))
def test_what_a_trainer_says_of_all_of_its_time_is_what_the_ledger_says_but_for_what_is_rounded(
    answers: list[tuple[float, float, float]],
) -> None:
    ledger, sums, passed = Goodput(), dict.fromkeys((Use.TRAINING, Use.INPUT, Use.CHECKPOINTING), 0.0), 0.0
    for seconds in answers:
        sums = {use: total + more for (use, total), more in zip(sums.items(), seconds, strict=True)}
        passed += sum(seconds)
        told = Sums.from_object({"seconds": sums})
        report = Report("a", told) if told is not None else None
        now = NOW + timedelta(seconds=passed)
        ledger = carried_on(ledger, Use.OTHER, int(passed), report, now=now, wait=60 if report is not None else 0)
    assert ledger.seconds.starting + ledger.seconds.other <= len(sums)
    assert all(abs(ledger.seconds.by_use()[use] - total) <= 4 for use, total in sums.items())
