"""Files of other projects' modules that are no programs: manifests, scripts, and tests that go with no release.

They are read where Go keeps its modules, checked against our go.sum; nothing of them is in this repository.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from testbed.binaries import TRAINING_OPERATOR, Module, last_error
from testbed.cache import cache_root, locked, report
from testbed.errors import Unavailable
from testbed.toolchain import find_go, required_version

_SUITE = Path(__file__).parent / "go" / "training-operator-suite" / "suite_test.go"
_TESTED = "pkg/controller.v1/tensorflow"
_BUILD_SECONDS = 1800


def source_of(module: Module) -> Path:
    """The folder of the upstream module, downloaded if need be; read only. Raises `Unavailable` where it cannot be."""
    go = find_go(required_version(module.go_mod))
    command = [str(go), "mod", "download", "-json", module.upstream]
    answer = subprocess.run(command, cwd=module.folder, env=_environment(), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise Unavailable(f"go mod download of {module.upstream} failed: {last_error(answer.stderr or answer.stdout)}")
    return Path(json.loads(answer.stdout)["Dir"])


def controller_tests() -> Path:
    """The program of training-operator's tests of its TFJob controller, around which our suite stands.

    Go replaces no file of a module that it keeps, so the module is built from a copy.
    """
    suite = hashlib.sha256(_SUITE.read_bytes()).hexdigest()[:16]
    program = cache_root() / TRAINING_OPERATOR.key / f"tfjob-controller-{suite}.test"
    if program.exists():
        return program
    with locked(cache_root() / "build.lock", on_wait=lambda: report("waiting for a build in another process")):
        if not program.exists():
            report(f"building the tests of training-operator {TRAINING_OPERATOR.version}: a minute, the first time")
            _build_tests(program, source_of(TRAINING_OPERATOR))
    return program


def _build_tests(program: Path, source: Path) -> None:
    go = find_go(required_version((source / "go.mod").read_text()))
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_root(), prefix="building-") as scratch:
        copy, built = Path(scratch) / "module", Path(scratch) / "tests"
        # The parts that the tests import. Files alone: the folders of the original cannot be written to.
        for part in ("go.mod", "go.sum", "pkg"):
            _copy(source / part, copy / part)
        (copy / _TESTED / "suite_test.go").write_bytes(_SUITE.read_bytes())
        command = [str(go), "test", "-c", "-mod=readonly", "-trimpath", "-o", str(built), f"./{_TESTED}"]
        answer = subprocess.run(
            command, cwd=copy, env=_environment(), capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
        if answer.returncode != 0:
            raise Unavailable(f"go test -c of {TRAINING_OPERATOR.upstream} failed: {last_error(answer.stderr)}")
        built.replace(program)


def _copy(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
        if path.is_file():
            copied = target / path.relative_to(source) if source.is_dir() else target
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
