"""What this machine has: memory by whoever limits it, cores shared among replicas, ports, the trainer's Python."""

from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path

import pytest

from builders import manifest
from dtj.api.spec import JobSpec, Role
from dtj.core.replicas import Replica
from dtj.local import trainer as trainer_module
from dtj.local.machine import MIB, memory, thread_defaults
from dtj.local.ports import NoFreePort, ReservedPort, local_network, reserve
from dtj.local.run_directory import LocalDirectories, RunDirectory
from dtj.local.trainer import NoTrainer, Trainer, find_trainer
from support.local_runs import fake_trainer

CORES = len(os.sched_getaffinity(0))


def spec(**arguments: object) -> JobSpec:
    return JobSpec.model_validate(manifest(**arguments)["spec"])  # type: ignore[arg-type]


class Machine:
    """The files in which a kernel reports its memory."""

    def __init__(self, folder: Path, *, available: int) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.write(self.proc / "meminfo", f"MemTotal: 99 kB\nMemAvailable: {available // 1024} kB\n")

    def write(self, file: Path, content: object) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(content))

    def group(self, membership: str, **files: object) -> None:
        self.write(self.proc / "self" / "cgroup", membership)
        for file, content in files.items():
            self.write(self.cgroups / file.replace("__", "/").replace("_dot_", "."), content)

    def available(self) -> int:
        found = memory(spec(), proc=self.proc, cgroups=self.cgroups)
        assert found is not None
        return found.available


def test_without_limits_the_machines_memory_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=4096 * MIB)
    assert machine.available() == 4096 * MIB


def test_a_limit_of_a_control_group_counts_less_what_is_used_and_cannot_be_dropped(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=4096 * MIB)
    machine.group(
        "0::/a/b\n",
        a__memory_dot_max=1000 * MIB,
        a__memory_dot_current=500 * MIB,
        a__memory_dot_stat=f"anon 1\ninactive_file {100 * MIB}\n",
        a__b__memory_dot_max="max",
        a__b__memory_dot_current=1,
    )
    assert machine.available() == 600 * MIB


def test_in_a_container_whose_group_looks_like_the_root_the_limit_is_found(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=4096 * MIB)
    machine.group("0::/not/visible/here\n", memory_dot_max=300 * MIB, memory_dot_current=100 * MIB)
    assert machine.available() == 200 * MIB


def test_a_machine_that_reports_nothing_refuses_nothing(tmp_path: Path) -> None:
    assert memory(spec(), proc=tmp_path, cgroups=tmp_path) is None


def test_servers_need_less_than_replicas_that_load_all_of_tensorflow(tmp_path: Path) -> None:
    machine = Machine(tmp_path, available=1)
    roles = {"chief": 1, "worker": 2, "ps": 1}
    served = memory(spec(strategy="ParameterServer", roles=roles), proc=machine.proc, cgroups=tmp_path)
    mirrored = memory(spec(roles={"worker": 2}), proc=machine.proc, cgroups=tmp_path)
    assert served is not None
    assert mirrored is not None
    assert (served.needed, mirrored.needed) == (1900 * MIB, 1400 * MIB)


@pytest.mark.parametrize(("roles", "needed"), [({"worker": 3}, 1500), ({"chief": 1, "worker": 2}, 1500)], ids=str)
def test_of_a_pipeline_only_the_leader_loads_all_of_tensorflow(
    tmp_path: Path, roles: dict[str, int], needed: int
) -> None:
    machine = Machine(tmp_path, available=1)
    found = memory(spec(strategy="Pipeline", roles=roles), proc=machine.proc, cgroups=tmp_path)
    assert found is not None
    assert found.needed == needed * MIB


def test_the_cores_are_shared_among_the_replicas_that_compute() -> None:
    share = str(max(1, CORES // 2))
    assert thread_defaults(spec(roles={"worker": 2, "evaluator": 1}), {}) == {
        "TF_NUM_INTRAOP_THREADS": share,
        "OMP_NUM_THREADS": share,
    }


def test_a_number_of_threads_that_the_user_chose_stays() -> None:
    assert thread_defaults(spec(), {"OMP_NUM_THREADS": "3"}) == {}


# -- ports ----------------------------------------------------------------------------------------------------


def test_a_reserved_port_is_nobody_elses_until_its_process_starts() -> None:
    (port,) = reserve(1)
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port.number))
        port.release()
        with socket.socket() as process:
            process.bind(("", port.number))
        with pytest.raises(OSError, match="in use"):
            ReservedPort(port.number)
    finally:
        port.close()
    ReservedPort(port.number).close()


def test_ports_differ_and_lie_outside_the_range_of_outgoing_connections() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = reserve(20)
    try:
        numbers = [port.number for port in ports]
        assert len(set(numbers)) == 20
        assert not [number for number in numbers if low <= number <= high]
    finally:
        for port in ports:
            port.close()


def test_where_all_ports_are_for_outgoing_connections_those_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtj.local.ports._outgoing_range", lambda: (1024, 65_535))
    for port in reserve(2):
        assert 10_000 <= port.number <= 65_535
        port.close()


def test_a_machine_without_enough_ports_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtj.local.ports._LOWEST", 65_536)
    with pytest.raises(NoFreePort, match="has 0 free ports from 65536 on; the job needs 2"):
        reserve(2)


def test_too_few_files_that_may_be_open_are_no_lack_of_ports() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as first_free:
        few = first_free.fileno() + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        with pytest.raises(NoFreePort, match=r"it needs 100 ports, and more open files than allowed: see ulimit -n"):
            reserve(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_each_replica_has_an_address_and_a_status_port_of_its_own() -> None:
    with local_network(spec(roles={"worker": 2, "evaluator": 1})) as network:
        addresses = [
            network.address(namespace="n", job="j", role=Role.WORKER, index=index, port=2222) for index in range(2)
        ]
        ports = [network.status_port(role=role, index=0) for role in (Role.WORKER, Role.EVALUATOR)]
        assert all(address.startswith("127.0.0.1:") for address in addresses)
        assert len({*addresses, *(f"127.0.0.1:{port}" for port in ports)}) == 4
        network.release(Replica(Role.WORKER, 0))


def test_directories_of_the_manifest_become_folders_of_the_run_but_urls_stay(tmp_path: Path) -> None:
    folders = LocalDirectories(RunDirectory(tmp_path))
    plain = spec()
    assert folders.checkpoint(plain) == str(tmp_path / "checkpoint")
    assert folders.export(spec(export={"path": "/mnt/model"})) == str(tmp_path / "export")
    assert folders.logs(plain) == str(tmp_path / "tensorboard")
    kept = spec(checkpoint={"inMemory": {}}, roles={"worker": 1, "evaluator": 1})
    assert folders.memory(kept, Replica(Role.WORKER, 0)) == str(tmp_path / "memory" / "worker-0")
    assert folders.memory(kept, Replica(Role.EVALUATOR, 0)) is folders.memory(plain, Replica(Role.WORKER, 0)) is None
    cloud = spec(checkpoint={"path": "gs://b/c"}, export={"path": "s3://b/m"})
    assert (folders.checkpoint(cloud), folders.export(cloud)) == ("gs://b/c", "s3://b/m")


# -- the trainer's Python -------------------------------------------------------------------------------------


def test_the_python_that_is_given_is_taken(tmp_path: Path) -> None:
    python = fake_trainer(tmp_path)
    assert find_trainer(str(python), {}) == Trainer(python)
    assert find_trainer(None, {"DTJ_TRAINER_PYTHON": str(python)}) == Trainer(python)


@pytest.mark.parametrize("named_by", ["--trainer-python", "DTJ_TRAINER_PYTHON"])
def test_a_python_without_tensorflow_is_named_with_the_command_that_installs_it_there(named_by: str) -> None:
    option, variable = (None, sys.executable) if named_by == "DTJ_TRAINER_PYTHON" else (sys.executable, "")
    with pytest.raises(NoTrainer) as raised:
        find_trainer(option, {"DTJ_TRAINER_PYTHON": variable})
    assert str(raised.value) == (
        f"{named_by}: {sys.executable} has no TensorFlow; type `{sys.executable} -m pip install "
        "'dtj-trainer[cpu,tensorboard]'` (in a checkout './trainer-image[cpu,tensorboard]' ./trainer-image/dtj_launch)"
        ", or name another Python"
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo python=3.9.2 tensorflow", "is Python 3.9.2, and the trainer needs 3.11 or newer; name another Python"),
        ("echo tensorflow dtj_trainer is gone >&2; exit 1", "is no Python that works: tensorflow dtj_trainer is gone;"),
        ("exit 0", "is no Python that works: it printed nothing;"),
    ],
)
def test_a_program_that_cannot_be_the_trainers_python_is_named_with_the_reason(
    tmp_path: Path, script: str, why: str
) -> None:
    python = fake_trainer(tmp_path)
    python.write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(NoTrainer, match=f"--trainer-python: {python} {why}"):
        find_trainer(str(python), {})


@pytest.mark.parametrize(
    ("checkout", "remedy"),
    [(Path("/no/checkout"), r"`make trainer` in the checkout"), (None, r"`pip install 'dtj-cli\[local\]'`")],
    ids=["checkout", "installed"],
)
def test_without_any_trainer_the_message_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, checkout: Path | None, remedy: str
) -> None:
    monkeypatch.setattr(trainer_module, "_checkout", lambda: checkout)
    monkeypatch.setattr(trainer_module, "_candidates", lambda: iter(()))
    with pytest.raises(NoTrainer, match=f"no Python with TensorFlow and dtj_trainer found: type {remedy}, or"):
        find_trainer(None, {})


def test_a_virtual_environment_is_named_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    python = fake_trainer(tmp_path).rename(tmp_path / "venv" / "bin" / "python")
    assert find_trainer(None, {"DTJ_TRAINER_PYTHON": str(tmp_path / "venv")}) == Trainer(python)


def test_without_a_checkout_the_python_that_runs_dtj_is_taken_if_it_can_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_module, "_checkout", lambda: None)
    python = fake_trainer(tmp_path)
    monkeypatch.setattr(sys, "executable", str(python))
    assert find_trainer(None, {}) == Trainer(python)


def test_packages_in_the_home_of_the_user_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install --user` puts them into a folder that an isolated Python leaves out."""
    base = Path(sys._base_executable)  # type: ignore[attr-defined]  # a virtual environment has no such folder
    monkeypatch.setenv("HOME", str(tmp_path))
    packages = tmp_path / ".local" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for name in ("tensorflow", "dtj_trainer"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    assert find_trainer(str(base), {}) == Trainer(base)
