"""The page of a job in a real browser: it is drawn, it asks for nothing, and nothing in it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dtj.cli.report.page import render_page
from support.browser import browser, find_browser, look_at
from support.job_evidence import HOSTILE, a_job_that_failed, a_job_that_succeeded
from testbed.errors import Unavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")

WIDTHS = (1280, 400)


@pytest.fixture(scope="module")
def program() -> str:
    try:
        return find_browser()
    except Unavailable as error:
        pytest.skip(f"no browser: {error}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(program: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with browser(program, tmp_path_factory.mktemp("profile")) as address:
        yield address


def written(folder: Path, *, failed: bool) -> Path:
    evidence = a_job_that_failed() if failed else a_job_that_succeeded()
    page = folder / "page.html"
    page.write_text(render_page(evidence))
    return page


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("failed", [False, True], ids=["succeeded", "failed"])
async def test_a_page_is_drawn_in_its_width_and_asks_for_nothing(
    address: str, tmp_path: Path, width: int, failed: bool
) -> None:
    seen = await look_at(address, written(tmp_path, failed=failed), width=width)
    assert seen.requests == ()
    assert seen.complaints == ()
    assert seen.width <= width, "a page that has to be moved sideways"
    assert seen.colours > 20
    assert seen.elements["rect"] >= 3
    assert seen.elements["polyline"] >= 2


async def test_the_page_follows_the_readers_dark_mode(address: str, tmp_path: Path) -> None:
    page = written(tmp_path, failed=False)
    light, dark = [await look_at(address, page, width=1280, dark=dark) for dark in (False, True)]
    assert min(light.paper) > 200
    assert max(dark.paper) < 80


async def test_hostile_words_of_a_log_are_words(address: str, tmp_path: Path) -> None:
    seen = await look_at(address, written(tmp_path, failed=True), width=1280)
    assert HOSTILE in seen.text
    assert seen.elements.keys().isdisjoint({"script", "img", "iframe", "a", "b-hostile"})
