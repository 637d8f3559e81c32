"""TensorBoard for runs on this machine: where a run's curves are, and a TensorBoard that shows them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from dtj.local.run_directory import RunError
from dtj.local.trainer import NoTrainer, find_trainer, how_to_install

HOST: Final = "127.0.0.1"

_POLL_SECONDS: Final = 0.1
_END_SECONDS: Final = 5.0


class NotServing(Exception):
    """TensorBoard did not start; the message holds its last words."""


@dataclass(frozen=True, slots=True)
class Server:
    """A TensorBoard that serves on ``port``."""

    port: int
    process: subprocess.Popen[bytes]

    def wait(self) -> int:
        """Its exit code, once it ends."""
        return self.process.wait()


def log_option(logs: Iterable[Path]) -> str:
    """TensorBoard's option for the logs of one run, or of several with their names. Raises RunError."""
    folders = [folder.resolve() for folder in logs]
    if len(folders) == 1:
        return f"--logdir={folders[0]}"
    for folder in folders:
        if "," in str(folder):
            raise RunError(f"--run: TensorBoard shows no second run next to a path with a comma: {folder.parent}")
    # digits/20260102-030405 of .../digits/20260102-030405/tensorboard
    named = {"/".join(folder.parts[-3:-1]).replace(":", "_"): folder for folder in folders}
    return "--logdir_spec=" + ",".join(f"{name}:{folder}" for name, folder in named.items())


def find_tensorboard(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command of a TensorBoard: that of the trainer's environment, or else of the PATH. Raises RunError."""
    path = environ.get("PATH", os.defpath)
    with suppress(NoTrainer):
        path = os.pathsep.join((str(find_trainer(None, environ).python.parent), path))
    found = shutil.which("tensorboard", path=path)
    if found is None:
        raise RunError(
            f"the command tensorboard is neither in the trainer's environment nor on the PATH: {how_to_install()}"
        )
    return (found,)


@contextmanager
def served(program: tuple[str, ...], logs: str, *, port: int, timeout: float) -> Iterator[Server]:
    """Run TensorBoard within the block, which begins when it answers; ``logs`` is its option. Raises RunError,
    NotServing."""
    port = _free(port)
    command = [*program, logs, f"--port={port}", f"--host={HOST}"]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env=quiet, stdout=subprocess.DEVNULL, stderr=output)
        try:
            _await_answer(process, port, timeout=timeout, output=output)
            yield Server(port, process)
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free(port: int) -> int:
    """``port``, or one that is free where it is 0. Raises RunError where it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            message = f"cannot listen on port {port}: {error.strerror}: choose another port with --port, or 0 for any"
            raise RunError(message) from error
        return int(probe.getsockname()[1])


def _await_answer(process: subprocess.Popen[bytes], port: int, *, timeout: float, output: IO[str]) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
            return
        if process.poll() is not None:
            output.seek(0)
            last = output.read().strip().rpartition("\n")[2] or "it printed nothing"
            raise NotServing(f"TensorBoard ended with code {process.returncode}: {last}")
        time.sleep(_POLL_SECONDS)
    raise NotServing(f"TensorBoard did not answer on port {port} within {timeout:g} s")
