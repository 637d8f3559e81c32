"""A store that answers slowly: what it delays is not lost, and what takes too long ends in one line."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dtj_trainer.checkpoint.mirror import CheckpointMirror
from dtj_trainer.config.store_url import Location
from dtj_trainer.errors import TrainerError
from dtj_trainer.object_store.bucket import Bucket, StoreFailed
from support.faulty_store import ANY, Fault
from trainer.stores import Store

RETRY_SECONDS = 6
LIMIT_SECONDS = 45
"""Fewer than the 60 s that requests are repeated without the option. One that begins just before the end of the
repetitions takes 5 s more than these; the rest is for a busy machine."""


@pytest.fixture
def bucket(store: Store) -> Bucket:
    return Bucket(Location.of(store.url("run")), option="--checkpoint-dir", retry_seconds=RETRY_SECONDS)


def end_of(request: Callable[[], object]) -> tuple[float, TrainerError | None]:
    """The seconds that a request takes, and the error that it ends with."""
    began = time.monotonic()
    try:
        request()
    except TrainerError as error:
        return time.monotonic() - began, error
    return time.monotonic() - began, None


@pytest.mark.parametrize("fault", [Fault.STALLED_REQUEST, Fault.STALLED_ANSWER, Fault.TRICKLE])
def test_a_request_that_does_not_end_is_given_up_after_the_time_of_the_option(
    bucket: Bucket, store: Store, tmp_path: Path, fault: Fault
) -> None:
    large = 20 * 2**20
    for key in ("run/read", "run/delete"):
        store.contents.write(key, b"0123456789" * 30)
    store.contents.write("run/download", bytes(large))
    (tmp_path / "large").write_bytes(bytes(large))
    requests: dict[str, Callable[[], object]] = {
        "list": lambda: list(bucket.list("")),
        "read": lambda: bucket.read("run/read"),
        "download": lambda: bucket.download("run/download", large, tmp_path / "copy"),
        "write": lambda: bucket.write("run/write", b"small"),
        "create": lambda: bucket.create("run/create", b"small"),
        "upload": lambda: bucket.upload(tmp_path / "large", "run/upload"),
        "delete": lambda: bucket.delete("run/delete"),
    }
    if fault is Fault.STALLED_ANSWER:
        # The other answers may have no body to stop in.
        requests = {name: requests[name] for name in ("list", "read", "download")}
    store.proxy.fail(ANY, "", fault, times=10_000)
    with ThreadPoolExecutor(len(requests)) as pool:
        ends = dict(zip(requests, pool.map(end_of, requests.values()), strict=True))
    for name, (seconds, error) in ends.items():
        assert isinstance(error, StoreFailed), f"{name}: {error!r}"
        assert "the object store does not answer as it should" in str(error)
        assert "\n" not in str(error)
        assert seconds < LIMIT_SECONDS, f"{name}: {seconds:.1f} s"


@pytest.mark.parametrize(
    ("fault", "request_of", "answer"),
    [
        (Fault.STALLED_ANSWER, lambda bucket: bucket.read("run/data"), b"0123456789"),
        (Fault.STALLED_REQUEST, lambda bucket: bucket.write("run/new", b"small"), None),
        (Fault.STALLED_REQUEST, lambda bucket: bucket.create("run/new", b"small"), True),
        (Fault.STALLED_REQUEST, lambda bucket: bucket.delete("run/data"), None),
    ],
    ids=["read", "write", "create", "delete"],
)
def test_one_request_that_stalls_is_repeated(
    store: Store, fault: Fault, request_of: Callable[[Bucket], object], answer: object
) -> None:
    store.contents.write("run/data", b"0123456789")
    bucket = Bucket(Location.of(store.url("run")), option="--data-dir", retry_seconds=2 * RETRY_SECONDS)
    store.proxy.fail(ANY, "run/", fault, times=1)
    assert request_of(bucket) == answer
    assert store.proxy.is_spent()


def test_a_training_waits_for_an_upload_once_and_for_no_longer_than_the_option(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint.manager import Store as Checkpoints
    from dtj_trainer.checkpoint.state import State

    bucket = Bucket(Location.of(store.url("run")), option="--checkpoint-dir", retry_seconds=0.5)
    step = tf.Variable(0, dtype=tf.int64)
    state = State(weights=[tf.Variable(tf.zeros([4]))], step=step, total_steps=tf.Variable(9, dtype=tf.int64))
    mirror = CheckpointMirror(bucket, tmp_path)
    checkpoints = Checkpoints(state, tmp_path, keep=5, writes=True, mirror=mirror)
    checkpoints.restore_newest()
    store.proxy.answer_after(4)
    began = time.monotonic()
    for number in range(1, 7):
        step.assign(number)
        checkpoints.save_async(number)
    assert time.monotonic() - began < 4, "one answer takes longer"
    assert [record.message for record in caplog.records] == [
        f"step 2 is not saved: step 1 is still being written to {bucket.location} after 0.5 s; the training goes on, "
        "and saves again when it is written"
    ]
    store.proxy.answer_after(0)
    step.assign(7)
    checkpoints.save(7)
    assert mirror.steps() == [7, 1]
