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
