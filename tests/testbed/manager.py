"""Managers of other projects as plain processes next to a control plane."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import binaries, runs
from testbed.control_plane import ADDRESS, ControlPlane
from testbed.errors import ApiError
from testbed.pki import Authority
from testbed.processes import Process, wait_until
from testbed.rest import RestClient

# A program that reads a certificate from one folder alone gets a file system of its own around that folder.
_ENTER = """
set -e
own=$1; folder=$2; certificates=$3; shift 3
mkdir -p "$own"
mount -t tmpfs none "$own"
mkdir -p "$folder"
cp "$certificates"/* "$folder"
exec "$@"
"""


class Manager:
    """One manager in the run of a control plane. Any process may hold an instance: all state is in the run."""

    program: str
    served: str
    """The path of the API whose resources of `kind` it serves."""
    kind: str

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._folder = plane.run / self.program
        self._process = Process(self.program, run=plane.run)

    @property
    def log(self) -> str:
        """What the manager has written."""
        return self._process.log.read_text(errors="replace")

    @property
    def pids(self) -> list[int]:
        """Its live processes."""
        return self._process.pids

    def running(self) -> bool:
        """Whether the process runs."""
        return bool(self.pids)

    def stop(self) -> None:
        """End the manager."""
        self._process.kill()

    def _await_served(self) -> None:
        """Wait until the API server serves the resources: a manager ends if it starts before."""
        wait_until(self._is_served, what=f"{self.kind} to be served")

    def _is_served(self) -> bool:
        try:
            found = self._plane.api.request("GET", self.served)["resources"]
        except ApiError:
            return False
        return any(each["kind"] == self.kind for each in found)

    def _write_certificates(self) -> Path:
        """One certificate under the names that managers look for."""
        folder = self._folder / "certificates"
        folder.mkdir(parents=True, exist_ok=True)
        pair = Authority(self._plane.run / "pki").issue(self.program, hosts=(ADDRESS,))
        (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
        (folder / "tls.key").write_bytes(pair.key.read_bytes())
        return folder

    def _start(
        self,
        *arguments: str,
        health: int,
        own: str = "",
        folder: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the program; return when it is ready. Raises StartError with the end of its log if it is not.

        `folder` is where the program looks for the certificate, in the file system `own`; empty: `arguments` say it.
        """
        command: Sequence[str] = (str(binaries.ensure((self.program,))[self.program]), *arguments)
        if environment:
            command = ("env", *(f"{name}={value}" for name, value in environment.items()), *command)
        if folder:
            unshare = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))
            enter = ("sh", "-c", _ENTER, self.program, own, folder, str(self._write_certificates()))
            command = (*unshare, *enter, *command)
        self._process.start([*command], owner=runs.owner_of(self._plane.run))
        self._process.await_ready(RestClient(health, address=ADDRESS, tls=None).is_ready)
