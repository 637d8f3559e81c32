"""A forked task is what a started one is; and what would not be is started."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from forks import Forked
from trainer import fork_server
from trainer.cluster import PATH, SOURCE, Job, inherited

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux alone")

ONE = {"worker": 1}
TELLS = """
import json, os, signal, sys

def build():
    print(json.dumps({
        "main": sys.modules["__main__"].__spec__.name,
        "arguments": sys.argv,
        "path": sys.path,
        "folder": os.getcwd(),
        "environ": dict(os.environ),
        "input": sys.stdin.read(),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "handlers": {number: str(signal.getsignal(number)).split(" at ")[0] for number in signal.valid_signals()},
        "output": [os.readlink(f"/proc/self/fd/{number}") for number in (1, 2)],
        "buffering": [sys.stdout.line_buffering, sys.stderr.line_buffering, sys.stdout.encoding],
        "umask": os.umask(0o22),
        "flags": str(sys.flags),
    }))
    raise ValueError("all told")
"""


def test_a_forked_task_finds_and_leaves_what_a_started_one_does(folder: Path) -> None:
    arguments = ["--model=mine:build", "--dataset=digits", "--loss=mean_squared_error"]
    ends = []
    for plain in (True, False):
        with Job(folder, strategy="OneDevice", roles=ONE, arguments=arguments, plain=plain) as job:
            (folder / "mine.py").write_text(TELLS)
            environ = {"PYTHONPATH": f"{PATH}:{folder / 'more'}:/other", "CUDA_VISIBLE_DEVICES": ""}
            worker = job.start(environ=environ)["worker-0"]
            assert isinstance(worker.process, subprocess.Popen if plain else Forked)
            ends.append((worker.wait(), worker.last_words))
    assert ends[0] == ends[1]
    assert ends[0][0] == 2
    started, forked = (_report_of(line) for line in worker.log.splitlines() if line.startswith("{"))
    assert forked == started


def _report_of(line: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(line)
    del report["environ"]["TF_CONFIG"]  # whose port is another
    return report


@pytest.mark.parametrize(
    ("arguments", "environ", "fits"),
    [
        ([], {}, True),
        ([], {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}', "DTJ_STRATEGY": "MultiWorkerMirrored"}, True),
        ([], {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}',
              "DTJ_STRATEGY": "Pipeline"}, False),
        ([], {"PYTHONPATH": f"/mine:{SOURCE}"}, False),
        ([], {"PYTHONPATH": f"{PATH}:/mine", "CUDA_VISIBLE_DEVICES": "", "TEST_OF": "mine"}, True),
        ([], {"TF_NUM_INTRAOP_THREADS": "1"}, False),
        ([], {"LD_PRELOAD": "library.so"}, False),
        (["--script=train.py"], {}, False),
        (["--epochs=none"], {}, False),
    ],
    ids=["one", "member", "server", "path", "appended", "threads", "library", "script", "refused"],
)  # fmt: skip
def test_what_a_fork_would_change_is_started(arguments: Sequence[str], environ: Mapping[str, str], fits: bool) -> None:
    assert fork_server.current[fork_server.MODULE].fits(arguments, {**inherited(), **environ}) is fits
