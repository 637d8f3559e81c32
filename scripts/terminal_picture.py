"""Draw docs/images/demo.svg: what a terminal shows at the end of `dtj run examples/digits.yaml`, run for it.

usage: .venv/bin/python scripts/terminal_picture.py

The command runs in a terminal of its own; what it writes there is replayed as a terminal would, and drawn by rich.
Nothing is touched up but the folder of the run, which would name a day.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 104, 40

_CONTROL: Final = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|\r\n|\n|\r|[^\x1b\r\n]+")
_FONT_FACES: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_DAY: Final = re.compile(r"\d{8}-\d{6}")


def main() -> None:
    """Run the command, and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["dtj", "run", "examples/digits.yaml"]
        output = run(command, cwd=copied(Path(folder)))
    lines = [f"\x1b[1m$\x1b[0m {' '.join(command)}", *screen(output)]
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(lines))
    print(f"wrote {PICTURE.relative_to(ROOT)}")


def copied(folder: Path) -> Path:
    """A checkout to run in, whose paths are short: the folder of runs shall be its own."""
    for name in ("examples", ".venv-trainer"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(command: list[str], *, cwd: Path) -> str:
    """What a command writes to a terminal. Raises SystemExit where it fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {
        **os.environ,
        "TERM": "xterm-256color",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": str(ROOT / "operator"),
    }
    environment["DTJ_TRAINER_PYTHON"] = str(cwd / ".venv-trainer" / "bin" / "python")
    with subprocess.Popen(command, cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        output = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # how Linux says that nobody has the other end open any more
                break
            if not chunk:
                break
            output += chunk
    os.close(ours)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{output.decode(errors='replace')}")
    return output.decode()


def screen(output: str) -> list[str]:
    """The lines on the screen at the end, with their colours; rich moves up, erases lines and writes them again."""
    lines, row = [""], 0
    for found in _CONTROL.finditer(output):
        argument, kind = found[1], found[2]
        if kind == "m":
            lines[row] += found[0]
        elif kind == "A":
            row = max(0, row - int(argument or 1))
        elif kind == "K":
            lines[row] = ""
        elif kind is None and found[0].endswith("\n"):
            row += 1
            if row == len(lines):
                lines.append("")
        elif kind is None and found[0] != "\r":
            lines[row] += found[0]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def drawn(lines: list[str]) -> str:
    """The picture; its fonts are the reader's, since others would have to be fetched."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(_DAY.sub("20260102-030405", line)), soft_wrap=True)
    console.print()  # room below the last line, which would touch the frame
    svg = console.export_svg(title="dtj", unique_id="demo")
    svg = _FONT_FACES.sub("", svg)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    main()
