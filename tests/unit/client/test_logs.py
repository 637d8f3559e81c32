"""Logs of a job: read line by line, gone on with where they broke off, merged by time, searched for the first error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, cast

import pytest

from dtj.api.job import Job
from dtj.api.json import JsonObject, object_at
from dtj.api.status import RootCause
from dtj.cli.logs.show import first_error_lines, log_text, plain_line
from dtj.client.logs import (
    CONTEXT_LINES,
    ERROR_LINES,
    ContainerLog,
    ErrorFinder,
    FirstError,
    LogLine,
    LogNote,
    LogSelection,
    NothingToRead,
    first_error,
    merged,
    parse_line,
    silence,
)
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from dtj.kube.gateway import PODS, Listing, Resource
from dtj.kube.pod_logs import MAX_LOG_LINE_BYTES, LogQuery, StampedLine, split_lines
from overviews import body, job_pod, pod_body
from support.fake_gateway import FakeGateway
from support.screens import seen


def stamped(second: float, text: str) -> bytes:
    return f"2026-01-02T03:04:{second:013.10f}Z {text}".encode()


class Kubelet:
    """Answers each reading with the next of these lists; an error in one of them breaks the connection."""

    def __init__(self, *readings: Sequence[bytes | ApiError]) -> None:
        self.readings = [*readings]
        self.asked: list[LogQuery] = []

    async def log(self, query: LogQuery, *, namespace: str, pod: str) -> AsyncGenerator[bytes, None]:
        self.asked.append(query)
        for line in self.readings.pop(0):
            if isinstance(line, ApiError):
                raise line
            yield line


def log(kubelet: Kubelet, **query: object) -> ContainerLog:
    wanted = LogQuery(container="trainer", **query)  # type: ignore[arg-type]
    return ContainerLog(cast(KubeGateway, kubelet), wanted, namespace="default", pod="digits-worker-0")


async def texts(lines: AsyncIterator[StampedLine]) -> list[str]:
    found = []
    try:
        async for line in lines:
            found.append(line.text)
    except Unavailable:
        found.append("broken")
    return found


# -- lines -----------------------------------------------------------------------------------------------------


async def split(*chunks: bytes) -> list[bytes]:
    async def source() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return [line async for line in split_lines(source())]


async def test_lines_are_found_wherever_the_chunks_end() -> None:
    assert await split(b"a\nb", b"c\n\n", b"d") == [b"a", b"bc", b"", b"d"]
    assert await split() == []


async def test_a_line_without_end_is_cut_and_the_next_one_is_whole() -> None:
    piece = b"x" * 1000
    first, second = await split(*[piece] * 100, b"\nnext\n")
    assert len(first) == MAX_LOG_LINE_BYTES
    assert second == b"next"


def test_a_line_without_a_timestamp_is_kept_as_it_is() -> None:
    assert parse_line(b"no timestamp at all").text == "no timestamp at all"
    assert parse_line(b"2026-01-02T03:04:05.123456789Z ").text == ""
    assert parse_line(b"2026-01-02T03:04:05.123456789+02:00 a b").text == "a b"


def test_what_is_asked_of_a_kubelet() -> None:
    assert LogQuery(container="a", tail=0).parameters() == {"container": "a", "timestamps": "true", "tailLines": "0"}
    both = LogQuery(container="a", since_seconds=9, since_time="2026-01-02T03:04:05Z", follow=True)
    assert both.parameters() == {
        "container": "a",
        "timestamps": "true",
        "follow": "true",
        "sinceTime": "2026-01-02T03:04:05Z",
    }


# -- going on --------------------------------------------------------------------------------------------------


async def test_a_broken_reading_is_gone_on_with_and_no_line_comes_twice() -> None:
    lines = [stamped(1, "a"), stamped(5.1, "b"), stamped(5.1, "b"), stamped(5.2, "c")]
    kubelet = Kubelet([*lines[:2], Unavailable("gone")], [lines[1], lines[2], lines[3], stamped(6, "d")])
    reading = log(kubelet, tail=7, since_seconds=60)
    assert await texts(reading.read(follow=True)) == ["a", "b", "broken"]
    assert await texts(reading.read(follow=True)) == ["b", "c", "d"]
    first, second = kubelet.asked
    assert (first.tail, first.since_seconds, first.since_time) == (7, 60, "")
    assert (second.tail, second.since_time) == (None, "2026-01-02T03:04:04Z")


async def test_a_line_that_came_late_is_reported_once() -> None:
    first = [stamped(5.9, "error"), stamped(6.0, "output")]
    kubelet = Kubelet([*first, Unavailable("gone")], [*first, stamped(6.1, "more")])
    reading = log(kubelet)
    await texts(reading.read(follow=True))
    assert await texts(reading.read(follow=True)) == ["more"]


async def test_a_reading_of_nothing_starts_again_with_all_that_was_asked() -> None:
    kubelet = Kubelet([Unavailable("gone")], [stamped(1, "a")])
    reading = log(kubelet, tail=3)
    assert await texts(reading.read(follow=True)) == ["broken"]
    assert await texts(reading.read(follow=True)) == ["a"]
    assert kubelet.asked[1].tail == 3


# -- merging ---------------------------------------------------------------------------------------------------


async def all_of(*kubelets: Kubelet) -> list[str]:
    logs = [(job_pod(f"worker-{place}"), log(kubelet)) for place, kubelet in enumerate(kubelets)]
    return [
        item.words if isinstance(item, LogNote) else f"{item.title} {item.line.text}" async for item in merged(logs)
    ]


async def test_logs_are_merged_by_time_and_each_stays_in_its_order() -> None:
    one = Kubelet([stamped(1, "a"), stamped(4, "d"), stamped(3, "late"), stamped(5, "e")])
    other = Kubelet([stamped(2, "b"), b"no time", stamped(4.5, "x")])
    assert await all_of(one, other) == [
        "worker-0 a",
        "worker-1 b",
        "worker-1 no time",
        "worker-0 d",
        "worker-0 late",
        "worker-1 x",
        "worker-0 e",
    ]


async def test_a_log_that_cannot_be_read_is_noted_and_hides_no_other() -> None:
    broken = Kubelet([stamped(1, "a"), NotFound("gone")])
    assert await all_of(broken, Kubelet([stamped(2, "b")])) == [
        "worker-0 a",
        "digits-worker-0: its log is gone",
        "worker-1 b",
    ]


async def test_the_kubelets_words_for_a_log_that_is_lost_are_no_line_of_it() -> None:
    lost = Kubelet([b"unable to retrieve container logs for containerd://da4ef8ddefe1"])
    assert await all_of(lost) == ["digits-worker-0: its log is gone"]


async def test_a_missing_right_is_an_error() -> None:
    with pytest.raises(Forbidden):
        await all_of(Kubelet([Forbidden("pods/log is forbidden")]), Kubelet([stamped(1, "a")]))


def test_why_there_is_nothing_to_read() -> None:
    job, every = Job.from_object(body(state="Suspended")), LogSelection()
    waiting = job_pod("worker-0", phase="Pending", unschedulable="0/3 nodes are available", node="")
    assert silence([], job, every) == "digits has no such pods at present: Suspended"
    assert silence([waiting], job, every) == "digits-worker-0 has not started: 0/3 nodes are available"
    assert silence([], job, LogSelection(previous=True)).startswith("digits: no earlier pod exists")
    assert silence([waiting, job_pod("worker-1")], job, every) == ""


# -- the first error -------------------------------------------------------------------------------------------


def found(*lines: str, message: str = "") -> tuple[tuple[str, ...], int, int]:
    finder = ErrorFinder(RootCause(role="worker", index=0, message=message))
    for line in lines:
        finder.take(line)
    first = finder.result()
    return first.lines, first.at, first.left


def test_the_first_traceback_is_found_with_the_lines_before_it() -> None:
    before = [f"step {number}" for number in range(20)]
    lines, at, left = found(*before, "Traceback (most recent call last):", "ValueError: no", "Traceback (most recent")
    assert lines[: CONTEXT_LINES + 1] == (*before[-CONTEXT_LINES:], "Traceback (most recent call last):")
    assert (at, left) == (CONTEXT_LINES, 0)


def test_a_certain_error_comes_before_a_likely_one() -> None:
    noise = "2026-01-02 E external/local_xla/stream_executor/cuda: Unable to register cuFFT factory"
    lines, at, _ = found(noise, "training", "tensorflow.python.framework.errors_impl.UnavailableError: lost")
    assert lines[at].endswith("UnavailableError: lost")
    lines, at, _ = found(noise, "training")
    assert lines[at] == noise


def test_the_words_of_the_status_are_found_where_nothing_looks_like_an_error() -> None:
    lines, at, _ = found("a", "no such flower", "b", message="no such flower")
    assert lines[at] == "no such flower"


def test_without_any_error_the_last_lines_are_shown() -> None:
    lines, at, _ = found(*map(str, range(200)))
    assert lines[at] == "199"
    assert len(lines) == ERROR_LINES


def test_a_long_log_after_the_error_is_counted_not_kept() -> None:
    lines, at, left = found("Traceback (most recent call last):", *["x"] * 1000)
    assert len(lines) - at == ERROR_LINES
    assert left == 1001 - ERROR_LINES


# -- looks -----------------------------------------------------------------------------------------------------

LINE = LogLine(
    "worker-0", "worker", StampedLine("2026-01-02T03:04:05Z", None, "\x1b[32m 1/9\r\x1b[32m 9/9\x1b[0m done")
)


def test_a_line_for_a_program_is_as_it_was_written() -> None:
    assert plain_line(LINE, width=8, prefix=True, timestamps=False) == f"worker-0 | {LINE.line.text}"
    assert plain_line(LINE, width=8, prefix=False, timestamps=True) == f"2026-01-02T03:04:05Z {LINE.line.text}"


def test_a_line_for_a_person_shows_a_progress_bar_as_it_was_drawn_last() -> None:
    assert log_text(LINE, width=9, prefix=True, timestamps=False).plain == "worker-0  |  9/9 done"


def test_the_first_error_as_a_person_sees_it() -> None:
    cause = RootCause(
        role="worker", index=1, pod="digits-worker-1", node="n2", exit_code=1, reason="Error", hint="check the labels"
    )
    what = FirstError(cause, ("step 3", "Traceback (most recent call last):", "ValueError: no"), 1, 7)
    lines = first_error_lines(what, more="dtj logs digits --role worker --index 1")
    assert seen(*lines, soft_wrap=True) == (
        "worker-1 exited with code 1  pod digits-worker-1 on node n2\n"
        "  step 3\n"
        "> Traceback (most recent call last):\n"
        "  ValueError: no\n"
        "  … 7 more lines\n"
        "hint: check the labels\n"
        "all of it: dtj logs digits --role worker --index 1"
    )


class WithInitContainer(FakeGateway):
    """It has the log of an init container that failed."""

    def __init__(self) -> None:
        super().__init__()
        failed = pod_body("worker-0", phase="Failed", state={"waiting": {"reason": "PodInitializing"}})
        ended: JsonObject = {"name": "fetch", "state": {"terminated": {"exitCode": 1}}}
        failed["spec"] = {**object_at(failed, "spec"), "initContainers": [{"name": "fetch"}]}
        failed["status"] = {**object_at(failed, "status"), "initContainerStatuses": [ended]}
        self.put(PODS, failed)

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        return await super().list(resource, namespace=namespace, selector=selector.partition("=")[0])

    async def log(self, query: LogQuery, *, namespace: str, pod: str) -> AsyncGenerator[bytes, None]:
        assert (query.container, pod) == ("fetch", "digits-worker-0")
        yield stamped(5, "Error: no such bucket")


async def test_the_first_error_of_an_init_container_is_in_its_own_log() -> None:
    gateway = cast("KubeGateway", cast("Any", WithInitContainer()))
    cause: JsonObject = {"role": "worker", "index": 0, "pod": "digits-worker-0", "exitCode": 1}
    failed = Job.from_object(body(state="Failed", rootCause=cause))
    found = await first_error(gateway, failed, LogSelection())
    assert (found.lines, found.note) == (("Error: no such bucket",), "")
    with pytest.raises(NothingToRead, match='no container "fetsh": there are '):
        await first_error(gateway, failed, LogSelection(container="fetsh"))
