"""``dtj`` as a person runs it: a process of its own, with a kubeconfig and a namespace."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import yaml

from patience import PATIENCE_SECONDS
from support import programs
from support.programs import COMMAND_LINE, SOURCES


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, in which Python finds this tree's ``dtj``."""
    return {**os.environ, "PYTHONPATH": str(SOURCES), **variables}


def install(folder: Path) -> Path:
    """Put a program ``dtj`` into a folder, made if it is not there: this tree's, as an installation would."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "dtj"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={SOURCES} exec {sys.executable} -m {COMMAND_LINE} "$@"\n')
    program.chmod(0o755)
    return program


def kubeconfig_in(namespace: str, kubeconfig: Path, *, folder: Path) -> Path:
    """A copy, whose contexts have this namespace: with it nobody types one."""
    config = yaml.safe_load(kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    copy = folder / "kubeconfig"
    copy.write_text(yaml.safe_dump(config))
    return copy


@dataclass
class CommandLine:
    """``dtj`` in a folder; what is still running when it is closed is killed."""

    folder: Path
    kubeconfig: Path
    namespace: str
    columns: int = 200
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, command: str, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """To its end."""
        with TemporaryFile("w+") as given, TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
            given.write(stdin)
            given.seek(0)
            words = self._words(command, *arguments)
            streams = (given.fileno(), output.fileno(), errors.fileno())
            process = programs.start(COMMAND_LINE, words, self._environment(), streams=streams, folder=self.folder)
            code = process.wait(PATIENCE_SECONDS)
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(words, code, output.read(), errors.read())

    def start(self, command: str, *arguments: object, output: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """And let it go on."""
        process = subprocess.Popen(
            [sys.executable, "-m", COMMAND_LINE, *self._words(command, *arguments)],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def _words(self, command: str, *arguments: object) -> list[str]:
        return [command, *map(str, arguments), "--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig)]

    def _environment(self) -> dict[str, str]:
        return environment(COLUMNS=str(self.columns), LINES="40")

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


class Terminal:
    """A terminal for the output of one process: a pseudo terminal, of which a test reads the other side."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.shown = ""

    def opened(self) -> None:
        """The process has it: our own handle must not keep it open."""
        os.close(self.theirs)

    def read_until(self, words: str) -> None:
        """Read until ``words`` have been shown. Raises AssertionError where the process ends before."""
        while words not in self.shown:
            assert self._read(), f"{words!r} was not shown:\n{self.shown}"

    def close(self) -> None:
        os.close(self._ours)

    def _read(self) -> bool:
        with suppress(OSError):  # on Linux, this is how a closed other side shows
            chunk = os.read(self._ours, 65_536)
            self.shown += chunk.decode(errors="replace")
            return bool(chunk)
        return False
