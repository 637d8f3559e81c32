"""Programs that use the SDK of TFJobs, each in a process of its own: the SDK has an environment of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from support.api_proxy import Call, Forward, proxied
from support.snippets import ROOT
from testbed import ControlPlane

PYTHON = ROOT / ".venv-tfjob" / "bin" / "python"
"""The Python that has the SDK: `make programs-tfjob`."""


@dataclass(frozen=True)
class Sdk:
    """Programs that ask a cluster as an administrator, in a folder of their own."""

    kubeconfig: Path
    folder: Path

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments, and these variables, to its end."""
        own = {
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_ADDOPTS": "",
        }
        done = subprocess.run(
            [PYTHON, *arguments],
            cwd=self.folder,
            env={**os.environ, **own, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.stdout, done.stderr)  # shown where the test fails
        return done


@contextmanager
def sdk(plane: ControlPlane, folder: Path) -> Iterator[Sdk]:
    """Each pod has a log of one line."""

    async def answer(call: Call, forward: Forward) -> web.StreamResponse:
        if call.resource != "pods/log":
            return await forward()
        return web.Response(text=f"{call.name} learns\n", content_type="text/plain")

    with proxied(plane, "sdk", answer, folder) as kubeconfig:
        yield Sdk(kubeconfig, folder)
