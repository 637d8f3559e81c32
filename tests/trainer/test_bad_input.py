"""What cannot be is refused before TensorFlow is imported: exit code 2 and one line that says what to do."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.cluster import DEADLINE, inherited, refused


def test_a_bad_argument_is_one_line(tmp_path: Path) -> None:
    assert refused(tmp_path, "--task=poetry") == (
        "dtj_trainer: --task=poetry: no such task; this trainer knows image-classification, text-classification, "
        "tabular-regression, tabular-classification"
    )


@pytest.mark.parametrize(
    ("variable", "what", "flag"),
    [
        ("DTJ_CHECKPOINT_DIR", "checkpoint directory", "--checkpoint-dir"),
        ("DTJ_EXPORT_DIR", "export directory", "--export-dir"),
        ("DTJ_LOG_DIR", "log directory", "--log-dir"),
    ],
)
def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path, variable: str, what: str, flag: str) -> None:
    # Below a plain file, since root may write anywhere else.
    (tmp_path / "file").write_text("")
    directory = tmp_path / "file" / "below"
    assert refused(tmp_path, DTJ_JOB_NAME="job", **{variable: str(directory)}) == (
        f"dtj_trainer: {what} {directory}: cannot be written (Not a directory); mount a writable volume there, "
        f"or give another with {flag}"
    )


@pytest.mark.parametrize(("strategy", "role"), [("MultiWorkerMirrored", "worker"), ("ParameterServer", "ps")])
def test_a_port_in_use_is_one_line(tmp_path: Path, strategy: str, role: str) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]}
        cluster[role] = [f"127.0.0.1:{port}"]
        if strategy == "MultiWorkerMirrored":
            del cluster["ps"]
        config = {"cluster": cluster, "task": {"type": role, "index": 0}}
        variables = {"DTJ_STRATEGY": strategy, "TF_CONFIG": json.dumps(config)}
        printed = refused(tmp_path, restart_may_help=True, **variables)
    assert printed == (
        f"dtj_trainer: TF_CONFIG: port {port} of {role} 0: Address already in use; "
        "end the process that has it, or give another port"
    )


def test_help_is_fast_enough_to_read_and_names_every_exit_code() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dtj_trainer", "--help"],
        env=inherited(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.returncode == 0
    assert "| tensorflow" not in ended.stderr
    assert "| numpy" not in ended.stderr
    assert all(f" {code} " in ended.stdout.replace("\n", " ") for code in (0, 1, 2, 42, 75, 143))
