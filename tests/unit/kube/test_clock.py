"""An operator goes by the API server's clock where its own is wrong."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from dtj.kube.clock import ANSWERS, ServerClock
from dtj.kube.errors import NotFound
from dtj.kube.gateway import PODS
from support.web_server import gateway_at, served

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


class Machine:
    """A machine whose clock is ``ahead`` of the API server's."""

    def __init__(self, *, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.running = 1000.0
        self.clock = ServerClock(local=self.local, monotonic=lambda: self.running)

    @property
    def server(self) -> datetime:
        return NOON + timedelta(seconds=self.running - 1000.0)

    def local(self) -> datetime:
        return self.server + timedelta(seconds=self.ahead)

    def hear(self, *, late: float = 0.0) -> None:
        self.clock.observe(format_datetime(self.server - timedelta(seconds=late), usegmt=True))


def test_before_any_answer_it_is_the_machines_clock() -> None:
    machine = Machine(ahead=7200)
    assert machine.clock.now() == machine.local()


@pytest.mark.parametrize("ahead", [-4.0, 0.0, 4.0])
def test_a_clock_that_differs_by_seconds_counts_as_right(ahead: float) -> None:
    machine = Machine(ahead=ahead)
    machine.hear()
    assert machine.clock.now() == machine.local()


@pytest.mark.parametrize("ahead", [-7200.0, 7200.0])
def test_a_clock_that_is_hours_off_does_not_count(ahead: float) -> None:
    machine = Machine(ahead=ahead)
    machine.hear()
    machine.running += 90.5
    assert machine.clock.now() == machine.server


def test_a_step_of_the_machines_clock_does_not_count() -> None:
    machine = Machine()
    machine.hear()
    machine.ahead = -7200
    assert machine.clock.now() == machine.server


def test_an_answer_that_came_slowly_does_not_turn_back_the_time() -> None:
    machine = Machine(ahead=7200)
    machine.hear()
    machine.hear(late=60)
    assert machine.clock.now() == machine.server


def test_a_server_whose_clock_was_turned_back_is_followed_after_some_answers() -> None:
    machine = Machine()
    machine.hear()
    for _ in range(ANSWERS):
        machine.hear(late=7200)
    assert machine.clock.now() == machine.server - timedelta(hours=2)


OTHERS = timedelta(hours=1).total_seconds()


@pytest.mark.parametrize("wrong", [-OTHERS, OTHERS])
@pytest.mark.parametrize("ahead", [0.0, 3.0, -7200.0, 7200.0, OTHERS, -OTHERS], ids="local {:g}".format)
def test_one_of_three_api_servers_whose_clock_is_wrong_does_not_decide(ahead: float, wrong: float) -> None:
    machine = Machine(ahead=ahead)
    for number in range(3 * ANSWERS):
        machine.hear(late=-wrong if number % 3 == 1 else 0.0)
        machine.running += 2.0
        if number > 1:
            right = machine.local() if abs(ahead) <= 5.0 else machine.server
            assert machine.clock.now() == right


@pytest.mark.parametrize("wrong", [-OTHERS, OTHERS])
def test_where_the_answers_are_divided_the_machines_clock_decides(wrong: float) -> None:
    machine = Machine()
    for number in range(ANSWERS):
        machine.hear(late=-wrong if number % 2 == 0 else 0.0)
    assert machine.clock.now() == machine.local()


def test_many_answers_that_came_slowly_do_not_turn_back_the_time() -> None:
    machine = Machine()
    for number in range(ANSWERS):
        machine.hear(late=0.0 if number % 4 == 0 else 6.0 * number)
    assert machine.clock.now() == machine.local()


@pytest.mark.parametrize("date", [None, "", "yesterday", "Fri, 99 Jan 2026 12:00:00 GMT", "Fri, 02 Jan 20266 12:00:00"])
def test_a_date_that_cannot_be_read_says_nothing(date: str | None) -> None:
    machine = Machine(ahead=7200)
    machine.clock.observe(date)
    assert machine.clock.now() == machine.local()


def test_that_the_clocks_differ_is_reported_once_and_so_is_the_end_of_it(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(ahead=-7200)
    machine.hear()
    with caplog.at_level(logging.INFO, logger="dtj.kube.clock"):
        for _ in range(3):
            machine.clock.now()
        machine.ahead = 0
        for _ in range(3):
            machine.clock.now()
    assert [record.getMessage() for record in caplog.records] == [
        "this machine's clock is 7200 s behind the API server's: set it; until then, the API server's time counts",
        "this machine's clock agrees with the API server's again",
    ]


@pytest.mark.parametrize("status", [200, 404])
async def test_every_answer_gives_the_gateway_the_time(status: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({}, status=status, headers={"Date": "Fri, 02 Jan 2026 12:00:00 GMT"})

    async with served(answer) as url, gateway_at(url) as gateway:
        assert abs(gateway.clock.now() - NOON) > timedelta(days=1)
        with suppress(NotFound):
            await gateway.get(PODS, namespace="default", name="a")
        assert timedelta() <= gateway.clock.now() - NOON < timedelta(minutes=1)
