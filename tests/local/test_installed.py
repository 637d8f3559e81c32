"""What `make release` builds, installed into an empty virtual environment: no checkout takes part.

The packages that ours require are those of the environments of the tests, added to the module search path: to download
TensorFlow again would take minutes. tests/unit/test_packages.py compares the required ranges with the lock files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from trainer_environment import ROOT, trainer_python

DEADLINE = 300
OURS = ("DTJ_", "PYTHON", "VIRTUAL_ENV", "UV_", "PIP_")


def run(*command: object, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command without this project's variables, with a folder of programs first on the PATH."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    if path is not None:
        environ["PATH"] = os.pathsep.join((str(path), os.environ["PATH"]))
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


def succeeds(*command: object, cwd: Path, path: Path | None = None) -> str:
    done = run(*command, cwd=cwd, path=path)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of a release: distribution -> wheel."""
    output = tmp_path_factory.mktemp("release")
    succeeds(sys.executable, ROOT / "scripts" / "release_build.py", f"--output-dir={output}", cwd=ROOT)
    succeeds("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=output)
    return {path.name.partition("-")[0]: path for path in output.glob("*.whl")}


def environment(folder: Path, *wheels: Path, packages: tuple[str, ...] = ()) -> Path:
    """The programs of a new virtual environment with these wheels, and other environments' packages after them."""
    succeeds(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    install = ("-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python)
    succeeds(sys.executable, *install, *wheels, cwd=folder.parent)
    if packages:
        (site,) = folder.glob("lib/python3*/site-packages")
        (site / "required.pth").write_text("\n".join(packages) + "\n")
    return folder / "bin"


def test_init_and_run_train_without_a_checkout(tmp_path: Path, wheels: dict[str, Path]) -> None:
    trainers = succeeds(trainer_python(), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    packages = (sysconfig.get_path("purelib"), trainers.strip())
    programs = environment(tmp_path / "venv", *wheels.values(), packages=packages)
    folder = tmp_path / "first"
    assert "dtj run job.yaml" in succeeds("dtj", "init", "first", cwd=tmp_path, path=programs)
    output = succeeds("dtj", "run", cwd=folder, path=programs)
    assert re.search(r"^first succeeded after ", output, re.MULTILINE), output
    assert f"the command runs with {programs}/python" in output.replace("\n", " ")
    assert str(ROOT) not in succeeds("dtj", "explain", "job.yaml", cwd=folder, path=programs)
    where = "import dtj, dtj_launch, dtj_trainer; print(dtj.__file__, dtj_launch.__file__, dtj_trainer.__file__)"
    found = succeeds(programs / "python", "-c", where, cwd=tmp_path).split()
    assert all(path.startswith(str(tmp_path / "venv")) for path in found), found


def test_the_launcher_and_the_callback_need_no_other_package(tmp_path: Path, wheels: dict[str, Path]) -> None:
    programs = environment(tmp_path / "venv", wheels["dtj_launch"])
    assert succeeds(programs / "dtj-launch", "--", "echo", "hello", cwd=tmp_path) == "hello\n"
    code = "from dtj_launch.progress import DTJCallback, report; DTJCallback(); report(step=1); print('shown')"
    assert succeeds(programs / "python", "-I", "-c", code, cwd=tmp_path) == "shown\n"


def test_without_the_trainer_the_command_that_installs_it_is_named(tmp_path: Path, wheels: dict[str, Path]) -> None:
    packages = (sysconfig.get_path("purelib"),)
    programs = environment(tmp_path / "venv", wheels["dtj_cli"], packages=packages)
    succeeds("dtj", "init", "first", cwd=tmp_path, path=programs)
    done = run("dtj", "run", cwd=tmp_path / "first", path=programs)
    assert done.returncode == 2
    assert "type `pip install 'dtj-cli[local]'`" in done.stderr.replace("\n", " ")
