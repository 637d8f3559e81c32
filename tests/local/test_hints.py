"""Each hint is given for the real words of what it is about: TensorFlow, Python and the shell fail for real."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from dtj.core.hints import HINTS, hint
from patience import PATIENCE_SECONDS
from trainer_environment import trainer_python

PROGRAMS = Path(__file__).with_name("failing_programs.py")
ADVICE = {known.name: known.advice for known in HINTS}

COMMANDS = {
    "not-executable": ("touch script; ./script", 126),
    "no-such-command": ("trainn --epochs=3", 127),
    "aborted": ("sh -c 'kill -ABRT $$'", 134),
    "cpu-too-old-by-code": ("sh -c 'kill -ILL $$'", 132),
    "bus-error-by-code": ("sh -c 'kill -BUS $$'", 135),
    "killed": ("sh -c 'kill -KILL $$'", 137),
    "segmentation-fault": ("sh -c 'kill -SEGV $$'", 139),
    "read-only": ("unshare -rm sh -c 'mount -t tmpfs -o ro none /mnt; touch /mnt/x'", 1),
    "arguments": ("python3 -c 'import argparse; argparse.ArgumentParser().parse_args()' --epoch=3", 2),
}
FROM_THE_KUBELET = {"out-of-memory-killed", "ephemeral-storage", "pod-deadline"}
"""Given by the reason that the kubelet writes, a constant of Kubernetes."""

AS_A_USER = {"not-permitted"}
"""Cannot be made to happen by root."""


@pytest.fixture(scope="module")
def last_words() -> dict[str, str]:
    done = subprocess.run(
        [trainer_python(), PROGRAMS], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    words: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return words


def test_what_programs_say_when_they_fail_is_recognized(last_words: dict[str, str]) -> None:
    given = {name: hint(message=words, reason="Error", exit_code=1) for name, words in last_words.items()}
    expected = {name: ADVICE[name.partition("__")[0].replace("_", "-")] for name in last_words}
    wrong = {name: (last_words[name], given[name]) for name in expected if given[name] != expected[name]}
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_shell_ends_with_is_recognized(name: str, tmp_path: Path) -> None:
    script, code = COMMANDS[name]
    done = subprocess.run(
        ["bash", "-c", f"{script}; exit $?"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert hint(message=done.stderr[-2048:], reason="Error", exit_code=code) == ADVICE[name]


def test_each_hint_is_tried(last_words: dict[str, str]) -> None:
    tried = {name.partition("__")[0].replace("_", "-") for name in last_words} | set(COMMANDS)
    from_reports = {known.name for known in HINTS if known.source}
    assert set(ADVICE) - tried == FROM_THE_KUBELET | AS_A_USER | from_reports


def test_a_volume_of_somebody_else_is_recognized(tmp_path: Path) -> None:
    """In a folder that one may read alone; root is another user there."""
    tmp_path.chmod(0o555)
    become = "os.setuid(65532); " if os.geteuid() == 0 else ""
    program = f"import os; {become}open({str(tmp_path / 'x')!r}, 'w')"
    done = subprocess.run(["python3", "-c", program], capture_output=True, text=True, check=False)
    assert hint(message=done.stderr, reason="Error", exit_code=1) == ADVICE["not-permitted"]


def test_what_the_kubelet_says_is_recognized() -> None:
    assert hint(message="", reason="OOMKilled", exit_code=137) == ADVICE["out-of-memory-killed"]
    own_use = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
    assert hint(message=own_use, reason="Evicted", exit_code=None) == ADVICE["ephemeral-storage"]
    of_one = 'Container trainer exceeded its local ephemeral storage limit "1Gi". '
    assert hint(message=of_one, reason="Evicted", exit_code=137) == ADVICE["ephemeral-storage"]
    late = "Pod was active on the node longer than the specified deadline"
    assert hint(message=late, reason="DeadlineExceeded", exit_code=137) == ADVICE["pod-deadline"]
    assert hint(message="", reason="ContainerStatusUnknown", exit_code=137) == ""
    pressure = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. "
    assert hint(message=pressure, reason="Evicted", exit_code=None) == ""


def test_words_that_nobody_knows_get_no_hint() -> None:
    assert hint(message="no such flower", reason="Error", exit_code=3) == ""
