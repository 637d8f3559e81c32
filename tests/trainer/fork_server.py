"""Starts of the trainer, and of its launcher, that need not import TensorFlow again. See `forks.py`."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from dtj_launch.topology import RestartRole, topology_of
from dtj_trainer.config.parsing import parse
from dtj_trainer.errors import TrainerError
from forks import Forked, ForkServer

MODULE = "dtj_trainer"
LAUNCHER = "dtj_launch"
_READ_LATE = ("DTJ_", "TF_CONFIG", "TF_DATA_SERVICE_ADDRESS", "CUDA_VISIBLE_DEVICES", "TEST_", "AWS_")
"""Variables that are read after a task starts; any other may be read while TensorFlow is imported."""
_PATH = "PYTHONPATH"


class TrainerForks(ForkServer):
    """The process that forks, as this one knows it; started when it is first needed."""

    def __init__(self, environ: Mapping[str, str], *, program: str = MODULE) -> None:
        """Args:
        environ: what the server is started with, and what each of its children finds next to its job's variables.
        program: the trainer, or the launcher: it imports TensorFlow, too, as it forks the trainer.
        """
        super().__init__(program, ["dtj_trainer.preload"], environ)

    def fits(self, arguments: Sequence[str], environ: Mapping[str, str], *, imported: bool = False) -> bool:
        """Whether a fork gives what a start would.

        It does not where a start is refused or does its work without TensorFlow, where a script would find more
        imported than Python itself has, and where the environment is another than the server's. Folders may be
        appended to its PYTHONPATH; they must not hold a module that the server has imported.

        Args:
            imported: a script may find TensorFlow and Keras imported.
        """
        if not sys.platform.startswith("linux") or _surroundings(environ) != _surroundings(self.environ):
            return False
        try:
            config = parse(arguments, environ)
        except TrainerError:
            return False
        preloads = config.preloads or (imported and config.script is not None)
        lean = topology_of(environ).restart_role is RestartRole.SERVER
        return preloads and not lean and self._begins_with_ours(environ)

    def start(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        folder: Path,
        log: Path,
        options: Sequence[str] = (),
    ) -> Forked:
        """A fork whose output is appended to a log, and whose input is empty.

        Args:
            arguments: the trainer's.
            options: what the program gets before them.
        """
        with log.open("ab") as output, open(os.devnull) as nothing:
            streams = (nothing.fileno(), output.fileno(), output.fileno())
            return self.fork([*options, *arguments], environ, folder=folder, streams=streams)

    def _begins_with_ours(self, environ: Mapping[str, str]) -> bool:
        """Whether a PYTHONPATH begins with the server's own folders."""
        ours, theirs = (found.get(_PATH, "").split(os.pathsep) for found in (self.environ, environ))
        return theirs[: len(ours)] == ours


@contextmanager
def forking(environ: Mapping[str, str], *programs: str) -> Iterator[None]:
    """Meanwhile, there are servers for this process.

    Args:
        programs: what they run: the trainer and the launcher, if none is given.
    """
    servers = {program: TrainerForks(environ, program=program) for program in programs or (MODULE, LAUNCHER)}
    current.update(servers)
    try:
        yield
    finally:
        for program, server in servers.items():
            del current[program]
            server.stop()


current: dict[str, TrainerForks] = {}
"""Those of this process, by what they run. There are none outside of pytest: a bench measures whole starts."""


def _surroundings(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith((*_READ_LATE, _PATH))}
