"""The commands of the documents that need a cluster, typed in their order. The kubelet is simulated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dtj.api.names import Condition
from patience import PATIENCE_SECONDS
from support.command_line import environment, install, kubeconfig_in
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs
from support.snippets import ROOT, blocks
from support.tfjobs import SHAPES
from support.waiting import eventually

pytestmark = pytest.mark.api

EXPORT = {"path": "/dtj/checkpoint/export/1", "formats": ["SavedModel"], "size": 9, "digest": f"sha256:{64 * '0'}"}
EXPORTED = json.dumps({"export": EXPORT})
"""The last words of a pod that has exported."""


class Typed:
    """A command that was typed; what it has printed is in a file."""

    def __init__(self, line: str, *, folder: Path, environ: Mapping[str, str], output: Path) -> None:
        self.line = line
        self._output = output
        with output.open("wb") as out:
            self._process = subprocess.Popen(
                ["bash", "-c", line],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def shown(self) -> str:
        return self._output.read_text()

    def shows(self, *words: str) -> None:
        """Wait until one line has all of these."""

        def there() -> None:
            lines = self.shown.splitlines()
            assert any(all(word in line for word in words) for line in lines), f"{self.line}\n{self.shown}"

        eventually(there)

    def interrupt(self) -> None:
        """Ctrl-C, which a command that goes on needs to end; its exit code is its own affair."""
        assert self._process.poll() is None, f"{self.line}\n{self.shown}"
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(PATIENCE_SECONDS)

    def ends_well(self) -> None:
        if self._process.returncode is None:
            assert self._process.wait(PATIENCE_SECONDS) == 0, f"{self.line}\n{self.shown}"

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@dataclass
class Desk:
    """Somebody's folder, programs and cluster, whose kubelet the test plays."""

    world: JobWorld
    kubelet: KubeletLogs
    folder: Path
    environ: Mapping[str, str]
    _typed: list[Typed] = field(default_factory=list)

    def type(self, line: str) -> Typed:
        output = self.folder / f"output-{len(self._typed)}"
        typed = Typed(line, folder=self.folder, environ=self.environ, output=output)
        self._typed.append(typed)
        return typed

    def start(self) -> None:
        """The pods of the job run, and print a line."""
        self.world.await_pods(["worker-0", "worker-1"])
        for pod in ("digits-worker-0", "digits-worker-1"):
            self.kubelet.say(pod, "step 1/225")
        self.world.run_pods()
        self.world.await_condition(Condition.PODS_READY)

    def finish(self) -> None:
        """The job's pods end well."""
        for pod in ("digits-worker-1", "digits-worker-0"):  # with worker 0 the job ends, and pods that still run go
            self.world.end_pod(pod, exit_code=0, message=EXPORTED if pod.endswith("0") else "")
            self.kubelet.ended.add(pod)
        self.world.await_condition(Condition.COMPLETE)

    def close(self) -> None:
        for typed in self._typed:
            typed.close()


@pytest.fixture
def desk(world: JobWorld, kubelet: KubeletLogs, log_reader: Path, tmp_path: Path) -> Iterator[Desk]:
    """With the examples of the project, a TFJob, and ``dtj`` and ``kubectl`` on the path."""
    programs = tmp_path / "bin"
    install(programs)
    (programs / "kubectl").symlink_to(world.plane.kubectl_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "tfjob.yaml").write_text(SHAPES["servers and workers"])
    kubeconfig = kubeconfig_in(world.namespace, log_reader, folder=tmp_path)
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    environ = environment(KUBECONFIG=str(kubeconfig), KUBECACHEDIR=str(tmp_path / "cache"), PATH=path, COLUMNS="200")
    desk = Desk(world, kubelet, tmp_path, environ)
    yield desk
    desk.close()


def a_job_that_is_done(desk: Desk) -> None:
    desk.type("kubectl apply -f examples/digits.yaml").ends_well()
    desk.start()
    desk.finish()


def a_job(desk: Desk) -> None:
    desk.type("kubectl apply -f examples/digits.yaml").ends_well()
    desk.world.await_pods(["worker-0", "worker-1"])


BEFORE: dict[str, Callable[[Desk], None]] = {
    "docs/export.md": a_job_that_is_done,
    "docs/looking.md": a_job,
    "docs/report.md": a_job_that_is_done,
}
"""What a document takes for done."""


def watched_while_it_runs(desk: Desk, typed: Typed) -> None:
    desk.start()
    typed.shows("digits", "Running", "MultiWorkerMirrored", "2/2")
    typed.interrupt()
    promised = next(block for block in blocks(ROOT / "README.md") if block.text.startswith("NAME "))
    assert typed.shown.splitlines()[0].split() == promised.text.splitlines()[0].split()


def watched_until_it_has_succeeded(desk: Desk, typed: Typed) -> None:
    desk.start()
    typed.shows("digits", "Running")
    desk.finish()
    typed.shows("digits", "Succeeded")
    typed.interrupt()


def followed_to_the_end(desk: Desk, typed: Typed) -> None:
    typed.shows("worker-0 | step 1/225")
    desk.finish()


def shown_which_model_it_is(_: Desk, typed: Typed) -> None:
    typed.ends_well()
    assert json.loads(typed.shown) == EXPORT


MEANWHILE: dict[tuple[str, str], Callable[[Desk, Typed], None]] = {
    ("docs/export.md", "kubectl get dtj digits -o jsonpath='{.status.export}'"): shown_which_model_it_is,
    ("README.md", "kubectl get dtj -w"): watched_while_it_runs,
    ("README.md", "dtj logs digits -f"): followed_to_the_end,
    ("docs/quickstart-kind.md", "kubectl get dtj -w"): watched_until_it_has_succeeded,
}
"""What happens while a command goes on, and what is seen of it."""

DOCUMENTS = [
    "README.md",
    "docs/export.md",
    "docs/looking.md",
    "docs/migration.md",
    "docs/quickstart-kind.md",
    "docs/report.md",
]
"""Those whose blocks that need a cluster alone need no real kubelet and no Helm."""


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_work_one_after_the_other(desk: Desk, document: str) -> None:
    found = [block for block in blocks(ROOT / document) if block.is_shell and block.needs == {"cluster"}]
    lines = [line for block in found for line in block.lines]
    assert lines
    assert {line for place, line in MEANWHILE if place == document} <= set(lines)
    if document in BEFORE:
        BEFORE[document](desk)
    for line in lines:
        typed = desk.type(line)
        if (document, line) in MEANWHILE:
            MEANWHILE[document, line](desk, typed)
        typed.ends_well()


@pytest.mark.usefixtures("operator")
def test_the_python_that_follows_a_log_does(desk: Desk) -> None:
    [block] = [block for block in blocks(ROOT / "docs/looking.md") if block.language == "python"]
    call = f'\n\nimport asyncio\n\nasyncio.run(follow("digits", namespace="{desk.world.namespace}"))\n'
    (desk.folder / "piece.py").write_text(block.text + call)
    a_job(desk)
    desk.start()
    following = desk.type(f"{sys.executable} -u piece.py")
    following.shows("worker-0", "step 1/225")
    desk.finish()
    following.ends_well()
