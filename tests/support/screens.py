"""What a person sees of what ``dtj`` draws."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def seen(*drawn: RenderableType, width: int = 80, soft_wrap: bool = False) -> str:
    """The text on a screen so wide, without the blanks at the ends of its lines."""
    screen = io.StringIO()
    console = Console(file=screen, width=width, color_system=None, highlight=False)
    for each in drawn:
        console.print(each, soft_wrap=soft_wrap)
    return "\n".join(line.rstrip() for line in screen.getvalue().splitlines())
