"""What tools that wait for an object make of it, by their own libraries: ``tests/testbed/go/waiters``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dtj.api.json import JsonObject


@dataclass(frozen=True)
class Waiters:
    """The program, by its path."""

    program: Path

    def ask(self, tool: str, *arguments: str, objects: Mapping[str, JsonObject]) -> dict[str, str]:
        """The word of the tool for each object: its status without the message."""
        lines = "".join(json.dumps(each) + "\n" for each in objects.values())
        command = [str(self.program), tool, *arguments]
        answer = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
        words = [line.partition("\t")[0] for line in answer.stdout.splitlines()]
        return dict(zip(objects, words, strict=True))
