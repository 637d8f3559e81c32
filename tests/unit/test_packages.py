"""The packages that pip installs: what each holds, requires and answers to `--version`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = {"dtj-cli": ROOT, "dtj-trainer": ROOT / "trainer-image", "dtj-launch": ROOT / "trainer-image" / "dtj_launch"}
PACKAGES = ("dtj", "dtj_trainer", "dtj_launch")


def project(name: str) -> dict[str, Any]:
    """The table `project` of a distribution."""
    table: dict[str, Any] = tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text())["project"]
    return table


PLAYED = """#!/bin/bash
case $1 in
-) exec {python} -c 'import sys
sys.version_info, sys.prefix, sys.executable = (3, {minor}, 0), sys.base_prefix, "{itself}"
exec(sys.stdin.read())' ;;
--version) echo Python 3.{minor}.0 ;;
-m) mkdir -p "$3/bin" && printf '#!/bin/sh\n' >"$3/bin/pip" && chmod +x "$3/bin/pip" ;;
esac
"""


def set_up(folder: Path, **minors: int) -> subprocess.CompletedProcess[str]:
    """What `make setup` does for an environment without packages, where these commands are such Pythons."""
    for number, minor in minors.items():
        name = number.replace("_", ".")
        (folder / name).write_text(PLAYED.format(python=sys.executable, minor=minor, itself=folder / name))
        (folder / name).chmod(0o755)
    (folder / "lock").touch()
    return subprocess.run(
        [ROOT / "scripts" / "make_venv.sh", folder / "venv", "an environment", folder / "lock"],
        env={"PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_an_environment_gets_a_python_that_tensorflow_is_built_for_or_one_line(tmp_path: Path) -> None:
    done = set_up(tmp_path, python3=14, python3_13=13)
    assert done.stdout == f"setting up an environment in {tmp_path}/venv (Python 3.13.0)\n", done.stderr
    done = set_up(tmp_path, **{f"python3{minor}": 14 for minor in ("", "_11", "_12", "_13")})
    assert done.returncode == 0, "it is there"
    (tmp_path / "lock").write_text("# another one")
    done = set_up(tmp_path, **{f"python3{minor}": 14 for minor in ("", "_11", "_12", "_13")})
    assert (done.returncode, done.stderr) == (
        1,
        "error: Python 3.11 to 3.13 is needed, for which TensorFlow is built; found Python 3.14.0. "
        "Set PYTHON=/path/to/python\n",
    )


@pytest.mark.parametrize("name", FOLDERS)
def test_a_distribution_has_its_name_and_the_licence_of_the_project(name: str) -> None:
    assert project(name)["name"] == name
    assert (FOLDERS[name] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("name", FOLDERS)
def test_what_a_distribution_requires_are_ranges_and_no_pins(name: str) -> None:
    table = project(name)
    extras = [text for texts in table.get("optional-dependencies", {}).values() for text in texts]
    pinned = [
        text
        for text in [*table["dependencies"], *extras]
        if any(specifier.operator in ("==", "===") for specifier in Requirement(text).specifier)
    ]
    assert pinned == []


def test_the_launcher_requires_no_other_package_and_the_trainer_requires_the_launcher() -> None:
    assert project("dtj-launch")["dependencies"] == []
    assert Requirement(project("dtj-trainer")["dependencies"][0]).name == "dtj-launch"
    (local,) = project("dtj-cli")["optional-dependencies"]["local"]
    assert (Requirement(local).name, Requirement(local).extras) == ("dtj-trainer", {"cpu", "tensorboard"})


@pytest.mark.parametrize(
    ("lock", "libraries"),
    [
        ("requirements.lock", {"keras", "tensorflow-cpu", "tf-keras"}),
        ("requirements-gpu.lock", {"keras", "tensorflow", "tf-keras"}),
        ("requirements-tpu.lock", {"keras", "tf-keras"}),
    ],
)
def test_what_the_images_lock_is_in_the_ranges_that_pip_takes(lock: str, libraries: set[str]) -> None:
    table = project("dtj-trainer")
    texts = [*table["dependencies"], *(text for extra in table["optional-dependencies"].values() for text in extra)]
    ranges = {requirement.name.replace("_", "-"): requirement.specifier for requirement in map(Requirement, texts)}
    lines = (FOLDERS["dtj-trainer"] / lock).read_text().splitlines()
    locked = dict(line.split()[0].lower().replace("_", "-").split("==") for line in lines if "==" in line)
    assert {name for name in libraries if locked[name] not in ranges[name]} == set()


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_types_a_version_and_names_what_it_exports(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__file__ is not None
    assert (Path(package.__file__).parent / "py.typed").exists()
    assert all(hasattr(package, exported) for exported in package.__all__)
    assert "__version__" in package.__all__


@pytest.mark.parametrize(
    ("module", "program"),
    [
        ("dtj.cli.main", "dtj"),
        ("dtj.app.main", "dtj-operator"),
        ("dtj_trainer", "dtj-trainer"),
        ("dtj_launch", "dtj-launch"),
    ],
)
def test_a_program_answers_its_version(module: str, program: str) -> None:
    version = importlib.import_module(module.partition(".")[0]).__version__
    paths = os.pathsep.join(map(str, (ROOT / "operator", ROOT / "trainer-image")))
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{program} {version}\n"), done.stderr
