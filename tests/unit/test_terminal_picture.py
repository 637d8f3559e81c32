"""The terminal of which a picture is drawn shows what a real one would."""

from __future__ import annotations

import pytest
import terminal_picture

pytestmark = pytest.mark.unit


def test_lines_that_are_drawn_again_are_shown_once() -> None:
    output = (
        "a run\r\n\x1b[?25lstep 1\r\nbusy\r\x1b[2K\x1b[1A\x1b[2Kstep 2\r\n\x1b[1;32mdone\x1b[0m\r\n\x1b[?25hend\r\n\r\n"
    )
    assert terminal_picture.screen(output) == ["a run", "step 2", "\x1b[1;32mdone\x1b[0m", "end"]


def test_the_picture_asks_for_nothing_and_names_no_day() -> None:
    svg = terminal_picture.drawn(["\x1b[1mdigits\x1b[0m in dtj-runs/digits/20261121-202224"])
    assert "url(http" not in svg
    assert "20260102-030405" in svg
    assert "digits" in svg
