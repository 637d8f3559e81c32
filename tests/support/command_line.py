"""``dtj`` as a person runs it: a process of its own, with a kubeconfig and a namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from click.testing import CliRunner, Result

from dtj.cli.main import cli
from patience import PATIENCE_SECONDS
from support import programs
from support.programs import COMMAND_LINE, SOURCES
from testbed import Cluster


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


def typed(cluster: Cluster, namespace: str, *words: object, kubeconfig: Path | None = None) -> Result:
    """A command in this process, as an administrator types it for a namespace, and what came of it."""
    place = ("-n", namespace, "--kubeconfig", kubeconfig or cluster.kubeconfig)
    arguments = [str(word) for word in (*words, *place)]
    return CliRunner().invoke(cli, arguments, prog_name="dtj", standalone_mode=False)


@dataclass
class CommandLine:
    """``dtj`` in a folder; what is still running at the end of its context is killed."""

    folder: Path
    kubeconfig: Path
    namespace: str
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

    def start(self, command: str, *arguments: object) -> subprocess.Popen[str]:
        """And let it go on."""
        process = subprocess.Popen(
            [sys.executable, "-m", COMMAND_LINE, *self._words(command, *arguments)],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def _words(self, command: str, *arguments: object) -> list[str]:
        return [command, *map(str, arguments), "--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig)]

    def _environment(self) -> dict[str, str]:
        return environment(COLUMNS="200", LINES="40")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()
