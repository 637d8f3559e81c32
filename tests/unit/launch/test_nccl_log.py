"""What carries the gradients, read from logs of NCCL that users have published."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dtj_launch import nccl_log
from dtj_launch.nccl_log import NcclLog
from dtj_launch.progress import ProgressStore
from support.gpus import machine
from support.launched import Launched

INFINIBAND = """\
machine-1:16194:18587 [7] NCCL INFO Channel 03 : 15[b2000] -> 6[b1000] [send] via NET/IB/0/GDRDMA
machine-1:16194:18581 [1] NCCL INFO Channel 03 : 9[1b000] -> 8[1a000] via P2P/direct pointer
"""
"""NVIDIA/nccl#429"""
WITHOUT_GPU_DIRECT = """\
swat1-04:2017630:2017697 [7] NCCL INFO Channel 00/0 : 7[7] -> 6[6] via P2P/direct pointer/read
swat1-04:2017630:2017699 [5] NCCL INFO Channel 03/0 : 5[5] -> 12[4] [send] via NET/IB/3
swat1-04:2017630:2017700 [4] NCCL INFO Channel 03/0 : 13[5] -> 4[4] [receive] via NET/IB/3
"""
"""NVIDIA/nccl#1412"""
SOCKET = """\
cluster:926:926 [7] NCCL INFO NET/IB : No device found.
cluster:919:1150 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] via P2P/IPC/read
cluster:926:1151 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3
"""
"""NVIDIA/nccl#952"""
OLD_SOCKET = "ip-172-31-0-119:45328:45333 [0] NCCL INFO Ring 00 : 35 -> 34 [send] via NET/Socket/0\n"
"""NVIDIA/nccl#226"""
EFA = """\
ip-192-168-16-255:35480:35545 [0] NCCL INFO NET/OFI No NIC info for dev 0
ip-192-168-16-255:35480:35545 [0] NCCL INFO Ring 00 : 15 -> 0 [receive] via NET/AWS Libfabric/0
ip-192-168-29-243:26465:26533 [0] NCCL INFO Ring 00 : 8[0] -> 9[1] via P2P/IPC
"""
"""NVIDIA/nccl#229"""
ONE_MACHINE = """\
axa:3048391:3048566 [0] NCCL INFO Using network Socket
tj5-dev01:533:1765 [2] NCCL INFO Channel 07 : 2[6] -> 3[7] via SHM/direct/direct
tj5-dev01:532:1764 [1] NCCL INFO Connected all rings
"""
"""NVIDIA/nccl#1053, #1609: a network that is found, and not used"""
SUMS_IN_SWITCHES = """\
gpu34:23654:23684 [0] NCCL INFO CollNet 00/0 : 0 [receive] via COLLNET/SHARP/1/GDRDMA
"""
"""NVIDIA/nccl-tests#311"""
SUMS_IN_SWITCHES_OF_2_8 = "gpu34:23654:23684 [0] NCCL INFO Coll 00 : 0 [send] via COLLNET/SHARP/1\n"
"""coll_net.cc of NCCL 2.6 to 2.8"""
OLD_SHARED_MEMORY = "aetech:1315:1371 [3] NCCL INFO Channel 00 : 3[68000] -> 2[67000] via direct shared memory\n"
"""ultralytics/ultralytics#12905; NCCL up to 2.12"""
FULL = "host:88:90 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (INFINIBAND, "NET/IB/GDRDMA, P2P"),
        (WITHOUT_GPU_DIRECT, "NET/IB, P2P"),
        (SOCKET, "NET/Socket, P2P"),
        (OLD_SOCKET, "NET/Socket"),
        (EFA, "NET/AWS Libfabric, P2P"),
        (ONE_MACHINE, "SHM"),
        (OLD_SHARED_MEMORY, "SHM"),
        (SUMS_IN_SWITCHES + INFINIBAND, "COLLNET/SHARP/GDRDMA, NET/IB/GDRDMA, P2P"),
        (SUMS_IN_SWITCHES_OF_2_8, "COLLNET/SHARP"),
        (ONE_MACHINE + INFINIBAND, "NET/IB/GDRDMA, P2P, SHM"),
        ("", ""),
        (SOCKET.rstrip("\n"), "P2P"),  # of a line that is not whole yet nothing is read
    ],
)
def test_the_transport_is_what_connections_go_by(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "1").write_text(text)
    assert nccl_log.transport({nccl_log.VARIABLE: str(tmp_path)}) == found


def test_a_log_is_kept_only_with_gpus_and_where_the_user_does_not_keep_one() -> None:
    assert NcclLog({}, gpus=0).begin() == {}
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"):
        assert NcclLog({name: "x"}, gpus=2).begin() == {}
    log = NcclLog({}, gpus=2)
    variables = log.begin()
    folder = Path(variables[nccl_log.VARIABLE])
    assert (variables["NCCL_DEBUG"], variables["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET")
    assert variables["NCCL_DEBUG_FILE"] == f"{folder}/%p"
    (folder / "7").write_text(SOCKET)
    log.begin()
    assert list(folder.iterdir()) == []
    log.end()
    assert not folder.exists()


def test_each_warning_is_passed_on_once(tmp_path: Path) -> None:
    log = NcclLog({}, gpus=1)
    lines: list[bytes] = []
    folder = Path(log.begin()[nccl_log.VARIABLE])
    for text in (SOCKET + FULL, FULL[:20], FULL[20:]):
        with (folder / "7").open("a") as file:
            file.write(text)
        log.poll(lines.append, at_once=True)
    assert lines == [FULL.encode()] * 2
    assert (log.poll(lines.append) or 0) > 0
    log.end()


def test_what_comes_after_a_lot_of_other_lines_is_not_missed(tmp_path: Path) -> None:
    log = NcclLog({}, gpus=1)
    lines: list[bytes] = []
    folder = Path(log.begin()[nccl_log.VARIABLE])
    (folder / "7").write_text("machine-1:1:1 [0] NCCL INFO Trees\n" * 300_000 + SOCKET + FULL)
    log.poll(lines.append, at_once=True)
    assert lines == [FULL.encode()]
    assert nccl_log.transport({nccl_log.VARIABLE: str(folder)}) == "NET/Socket, P2P"
    log.end()


def test_the_progress_of_the_program_names_the_transport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ProgressStore()
    assert "transport" not in store.document()
    (tmp_path / "7").write_text(INFINIBAND)
    monkeypatch.setenv(nccl_log.VARIABLE, str(tmp_path))
    assert store.document()["transport"] == "NET/IB/GDRDMA, P2P"


def test_a_launcher_says_what_nccl_says_of_its_program(tmp_path: Path) -> None:
    root = machine(tmp_path / "machine", files=(0,))
    begin = (
        f"from dtj_launch import agent, devices, gpu_checks; devices.ROOT = {str(root)!r}; "
        "gpu_checks.check = lambda *_: None; agent.main()"
    )
    (tmp_path / "said").write_text(SOCKET + FULL)
    program = ("--", "sh", "-c", 'cp said "$DTJ_NCCL_LOG/7"; echo "$DTJ_NCCL_LOG"; exit 1')
    task = Launched(tmp_path, "task", program, launcher=(sys.executable, "-c", begin))
    assert task.wait() == 1
    assert "dtj-launch: gradients go by NET/Socket, P2P" in task.output
    assert FULL in task.output
    assert not Path(task.out.read_text().strip()).exists()
