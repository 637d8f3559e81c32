"""Restart in place: which process is started again after which end, and when an end is reported. No TensorFlow."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dtj_launch import status_client
from dtj_launch.options import read
from dtj_launch.out_of_memory import out_of_memory_kills
from dtj_launch.restart_in_place import ExitRecord, Policy
from dtj_launch.topology import RestartRole, topology_of
from support.launched import LAUNCHER, MEMBER, SOURCE, Launch, Launched, cluster_of
from support.waiting import eventually_true

LOST = ExitRecord(code=75, seconds=1, step=None, at_gate=False, termination_requested=False, out_of_memory=False)
KILLED = replace(LOST, code=137)

# -- the decision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "end", "again"),
    [
        (RestartRole.MEMBER, LOST, True),
        (RestartRole.MEMBER, KILLED, True),
        (RestartRole.COORDINATOR, LOST, True),
        (RestartRole.COORDINATOR, KILLED, True),
        (RestartRole.SERVER, KILLED, True),
        (RestartRole.SERVER, LOST, False),
        (RestartRole.ALONE, LOST, False),
        (RestartRole.ALONE, KILLED, False),
        *((RestartRole.MEMBER, replace(LOST, code=code), False) for code in (0, 1, 2, 42, 134, 139, 143)),
        (RestartRole.MEMBER, replace(KILLED, out_of_memory=True), False),
        (RestartRole.MEMBER, replace(KILLED, termination_requested=True), False),
        (RestartRole.MEMBER, replace(LOST, termination_requested=True), False),
        (RestartRole.MEMBER, replace(LOST, at_gate=True), False),
    ],
)
def test_only_a_lost_peer_and_a_kill_that_nobody_accounts_for_are_made_good(
    part: RestartRole, end: ExitRecord, again: bool
) -> None:
    assert (Policy(part, most=3).after(end) is not None) == again


LEAVES_ITS_GATE = (
    "import http.server, os, sys\n"
    "class AtGate(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    '        self.wfile.write(b\'HTTP/1.0 200 OK\\r\\n\\r\\n{"phase": "Gate"}\')\n'
    "if os.environ['DTJ_RESTARTS_IN_PLACE'] == '0':\n"
    "    place = os.environ['DTJ_BIND_ADDRESS'] or '127.0.0.1', int(os.environ['DTJ_STATUS_PORT'])\n"
    "    http.server.HTTPServer(place, AtGate).handle_request()\n"
    "    sys.exit(75)\n"
)
"""A program that loses a peer in the moment after it was seen at its gate."""


@pytest.mark.parametrize(("start_timeout", "host", "code"), [("60", "", 0), ("0.1", "", 75), ("0.1", "127.0.0.2", 75)])
def test_who_was_seen_at_its_gate_has_waited_in_vain_only_if_the_time_to_wait_is_over(
    launch: Launch, start_timeout: str, host: str, code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    arguments = (f"--start-timeout={start_timeout}", "--own-gate", "--", sys.executable, "-c", LEAVES_ITS_GATE)
    environ = {"TF_CONFIG": cluster_of(2)[0], "DTJ_STATUS_PORT": port, "DTJ_BIND_ADDRESS": host}
    assert launch(*arguments, **environ).wait() == code


def test_who_does_not_answer_any_more_has_left_its_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[str, object] | None] = [{"phase": "Gate"}, None]
    monkeypatch.setattr(status_client, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(status_client, "_status", lambda *_: answers.pop(0))
    poller = status_client.StatusPoller(1)
    poller.poll()
    assert poller.at_gate
    poller.poll()
    assert not poller.at_gate


@pytest.mark.parametrize("alone", [True, False])
def test_who_saved_with_a_peer_that_was_asked_to_stop_waits_for_the_next_where_that_one_comes_alone(
    alone: bool,
) -> None:
    saved = replace(LOST, code=42)
    policy = Policy(RestartRole.MEMBER, most=3, replace_single_pod=alone)
    assert (policy.after(saved) is not None) == alone
    assert policy.after(replace(saved, termination_requested=True)) is None


def test_restarts_in_vain_come_ever_later_and_then_the_end_is_reported() -> None:
    policy = Policy(RestartRole.MEMBER, most=6)
    ends = [policy.after(LOST) for _ in range(7)]
    assert [again and again.pause for again in ends] == [0, 1, 2, 4, 8, 10, None]


def test_a_new_step_begins_the_count_again_but_one_done_before_does_not() -> None:
    policy = Policy(RestartRole.MEMBER, most=1)
    assert policy.after(replace(LOST, step=10)) is not None
    assert policy.after(replace(LOST, step=11)) is not None
    assert policy.after(replace(LOST, step=11)) is None


def test_a_long_run_is_progress_only_of_who_publishes_none() -> None:
    long = replace(LOST, seconds=61)
    silent, reporting = Policy(RestartRole.MEMBER, most=1), Policy(RestartRole.MEMBER, most=1)
    assert all(silent.after(long) for _ in range(5))
    assert [reporting.after(replace(long, step=0)) is not None for _ in range(2)] == [True, False]


def test_a_coordinator_tries_once_for_a_server_that_hangs_needs_a_new_pod() -> None:
    policy = Policy(RestartRole.COORDINATOR, most=3)
    assert [policy.after(LOST) is not None for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("strategy", "cluster", "task", "part", "peers"),
    [
        ("MultiWorkerMirrored", {"worker": 3}, ("worker", 1), RestartRole.MEMBER, {"worker 0", "worker 2"}),
        ("", {"chief": 1, "worker": 1}, ("chief", 0), RestartRole.MEMBER, {"worker 0"}),
        ("MultiWorkerMirrored", {"worker": 1}, ("worker", 0), RestartRole.ALONE, set()),
        ("MultiWorkerMirrored", {"worker": 2}, ("evaluator", 0), RestartRole.ALONE, set()),
        (
            "ParameterServer",
            {"chief": 1, "worker": 1, "ps": 1},
            ("chief", 0),
            RestartRole.COORDINATOR,
            {"worker 0", "ps 0"},
        ),
        ("", {"chief": 1, "worker": 1, "ps": 1}, ("worker", 0), RestartRole.SERVER, set()),
        ("ParameterServer", {"chief": 1, "worker": 1, "ps": 1}, ("ps", 0), RestartRole.SERVER, set()),
        ("Pipeline", {"chief": 1, "worker": 2}, ("worker", 1), RestartRole.SERVER, set()),
        ("Pipeline", {"chief": 1, "worker": 2}, ("chief", 0), RestartRole.COORDINATOR, {"worker 0", "worker 1"}),
        ("TPU", {"worker": 2}, ("worker", 0), RestartRole.ALONE, set()),
    ],
)
def test_a_tasks_part_follows_from_strategy_and_cluster(
    strategy: str, cluster: Mapping[str, int], task: tuple[str, int], part: RestartRole, peers: set[str]
) -> None:
    listed = {role: [f"{role}-{index}:2222" for index in range(count)] for role, count in cluster.items()}
    config = {"cluster": listed, "task": {"type": task[0], "index": task[1]}}
    place = topology_of({"TF_CONFIG": json.dumps(config), "DTJ_STRATEGY": strategy, "DTJ_ATTEMPT": "4"})
    assert (place.restart_role, set(place.peers), place.attempt) == (part, peers, 4)
    assert topology_of({}).restart_role is RestartRole.ALONE


def test_the_restart_scope_of_the_job_decides_how_long_a_peer_may_stay_away() -> None:
    given = {scope: read(["--", "x"], {"DTJ_RESTART_SCOPE": scope}) for scope in ("", "Pod", "Job")}
    assert [(g.rejoin_timeout, g.restarts) for g in given.values()] == [(30, True), (300, True), (30, False)]
    elastic = [{"DTJ_WORLD_FILE": "world", "DTJ_STRATEGY": name} for name in ("MultiWorkerMirrored", "ParameterServer")]
    assert [read(["--", "x"], environ).rejoin_timeout for environ in elastic] == [300, 30]


def test_the_kernels_count_is_read_from_either_version_of_cgroups(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("5:memory:/pod/x\n0::/pod/y\n")
    assert out_of_memory_kills(tmp_path, own) is None
    for path, count in (("pod/y/memory.events", 3), ("memory/pod/x/memory.oom_control", 2)):
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text(f"oom 7\noom_kill {count}\n")
    assert out_of_memory_kills(tmp_path, own) == 2
    (tmp_path / "memory/pod/x/memory.oom_control").unlink()
    assert out_of_memory_kills(tmp_path, own) == 3


# -- real processes --------------------------------------------------------------------------------------------------


def test_who_lost_a_peer_waits_for_it_in_its_place_and_both_start_again(launch: Launch) -> None:
    one, other = (launch("--", *MEMBER, TF_CONFIG=config) for config in cluster_of(2))
    for number in range(3):
        for member in (one, other):
            member.wait_for(f"^run {number}$")
        (victim,) = one.children
        os.kill(victim, signal.SIGKILL)
        one.wait_for(r"killed from outside \(exit code 137\): starting again in place", times=number + 1)
        assert f"run {number + 1}" not in one.output, "its peer runs as before"
        other.send(signal.SIGUSR1)
    assert "a peer was lost (exit code 75): starting again in place, at once; the 1st time" in other.output
    assert one.process.poll() is other.process.poll() is None


def test_a_launcher_that_is_started_again_at_the_same_address_meets_those_that_held(launch: Launch) -> None:
    configs = cluster_of(3)
    members = [launch("--", *MEMBER, TF_CONFIG=config) for config in configs]
    for member in members:
        member.wait_for("^run 0$")
    members[2].end()
    for survivor in members[:2]:
        survivor.send(signal.SIGUSR1)
    replaced = launch("--", *MEMBER, TF_CONFIG=configs[2])
    replaced.wait_for("^run 0$")
    for survivor in members[:2]:
        survivor.wait_for("^run 1$")


def test_a_peer_that_does_not_come_back_is_waited_for_no_longer_than_asked(launch: Launch) -> None:
    configs = cluster_of(2)
    one, other = (launch("--rejoin-timeout=0.5", "--", *MEMBER, TF_CONFIG=config) for config in configs)
    for member in (one, other):
        member.wait_for("^run 0$")
    other.end()
    one.send(signal.SIGUSR1)
    assert one.wait() == 75
    assert "raise --rejoin-timeout" in one.last_words


@pytest.mark.parametrize("scope", ["Auto", "Job"])
def test_while_it_holds_it_stops_when_asked_to_and_where_all_start_again_it_does_not_hold(
    launch: Launch, scope: str
) -> None:
    members = [launch("--", *MEMBER, TF_CONFIG=config, DTJ_RESTART_SCOPE=scope) for config in cluster_of(2)]
    for member in members:
        member.wait_for("^run 0$")
    members[0].send(signal.SIGUSR1)
    if scope == "Auto":
        members[0].wait_for("starting again in place")
        eventually_true(lambda: not members[0].children)
        members[0].send(signal.SIGTERM)
    assert members[0].wait() == (143 if scope == "Auto" else 75)


def test_restarts_are_limited_where_there_is_no_progress(launch: Launch) -> None:
    fails = (sys.executable, "-c", "import os; print('run', os.environ['DTJ_RESTARTS_IN_PLACE']); os._exit(75)")
    members = [launch("--max-restarts-in-place=2", "--", *fails, TF_CONFIG=config) for config in cluster_of(2)]
    assert [member.wait() for member in members] == [75, 75]
    # Who met the other's next start for this one is one behind, and finds nobody there for its last.
    runs = sorted(member.out.read_text() for member in members)
    assert runs[-1] == "run 0\nrun 1\nrun 2\n"
    assert runs[0] in ("run 0\nrun 1\n", runs[-1])


def test_sets_of_texts_have_the_same_order_on_all_tasks_unless_the_user_says_otherwise(launch: Launch) -> None:
    shows = (sys.executable, "-c", "import os; print(os.environ.get('PYTHONHASHSEED'))")
    members = [
        launch("--", *shows, TF_CONFIG=config, **{"PYTHONHASHSEED": seed} if seed else {})
        for config, seed in zip(cluster_of(2), ("", "random"), strict=True)
    ]
    assert [member.wait() for member in members] == [0, 0]
    assert [member.out.read_text() for member in members] == ["0\n", "random\n"]


def test_sets_of_texts_have_the_same_order_in_a_preloaded_program(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("")
    (tmp_path / "program.py").write_text("print({'a', 'b', 'c', 'd', 'e', 'f', 'g'}, flush=True)")
    options = ("--own-gate", "--preload=heavy", "--module=program", "--")
    environments = [*({"TF_CONFIG": one} for one in cluster_of(2)), {}]
    members = [launch(*options, **environ, PYTHONHASHSEED="") for environ in environments]
    assert [member.wait() for member in members] == [0, 0, 0]
    assert len({member.out.read_text() for member in members}) == 1


HEAVY = "import os; print('imported by', os.getpid(), flush=True); HERE = os.getpid()"
PROGRAM = """
import os, signal, sys, time
import heavy
print("forked" if heavy.HERE == os.getppid() else "alone", sys.argv[1:], flush=True)
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
while True: time.sleep(1)
"""


def test_what_is_preloaded_is_imported_once_for_all_starts(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text(HEAVY)
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ("--own-gate", "--preload=heavy", "--module=program", "--", "--epochs=3")
    member = launch(*options, TF_CONFIG=cluster_of(2)[0])
    for number in (1, 2):
        member.wait_for(r"^forked \['--epochs=3'\]$", times=number)
        member.send(signal.SIGUSR1)
    assert member.output.count("imported by") == 1
    member.wait_for("forked", times=3)
    member.send(signal.SIGQUIT)
    member.wait_for('File ".*program.py", line 6')


def test_what_a_preloaded_module_prints_to_a_full_disk_changes_no_exit_code(tmp_path: Path) -> None:
    full = f"import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); os.execv({LAUNCHER[0]!r}, sys.argv[1:])"
    (tmp_path / "heavy.py").write_text("print('lost')")
    (tmp_path / "program.py").write_text("raise SystemExit(3)")
    options = ("--own-gate", "--preload=heavy", "--module=program", "--")
    launcher = (sys.executable, "-c", full, *LAUNCHER)
    environ = {"TF_CONFIG": cluster_of(2)[0], "PYTHONUNBUFFERED": ""}
    member = Launched(tmp_path, "member", options, launcher=launcher, **environ)
    assert (member.wait(), member.output) == (3, "")


def test_a_preloaded_program_that_leaves_an_idle_thread_pool_ends_as_a_python_of_its_own_does(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "heavy.py").write_text("")
    (tmp_path / "program.py").write_text(
        "import heavy\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "heavy.pool = ThreadPoolExecutor()\n"
        "print('computed', heavy.pool.submit(int).result(), flush=True)\n"
    )
    options = ("--own-gate", "--preload=heavy", "--module=program", "--")
    member = launch(*options, TF_CONFIG=cluster_of(2)[0])
    assert member.wait() == 0
    member.wait_for("^computed 0$")


def test_a_preload_that_fails_is_reported_and_each_start_is_a_process_of_its_own(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "heavy.py").write_text(HEAVY)
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ("--own-gate", "--preload=heavy,no_such_thing", "--module=program", "--", "x")
    member = launch(*options, TF_CONFIG=cluster_of(2)[0])
    member.wait_for(
        r"^dtj-launch: warning: --preload failed, so each start imports again: ModuleNotFoundError: .*'no_such_thing'"
    )
    member.wait_for(r"^alone \['x'\]$")
    member.send(signal.SIGUSR1)
    member.wait_for(r"^alone \['x'\]$", times=2)


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_a_server_and_who_is_alone_start_without_what_they_do_not_need(
    launch: Launch, tmp_path: Path, role: str
) -> None:
    (tmp_path / "heavy.py").write_text("raise AssertionError('imported')")
    (tmp_path / "program.py").write_text("print('runs')")
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    config = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
    options = ("--own-gate", "--preload=heavy", "--module=program", "--")
    server, alone = launch(*options, TF_CONFIG=config), launch(*options)
    assert (server.wait(), alone.wait()) == (0, 0)
    assert server.output == alone.output == "runs\n"


@pytest.mark.parametrize(
    ("argument", "code", "printed"),
    [("bad", 2, "checked\n"), ("good", 0, "checked\nimported\nrun\n"), ("bare", 0, "checked\nrun\n")],
)
def test_arguments_are_checked_before_anything_that_takes_time(
    launch: Launch, tmp_path: Path, argument: str, code: int, printed: str
) -> None:
    (tmp_path / "heavy.py").write_text("print('imported', flush=True)")
    (tmp_path / "program.py").write_text(
        "import sys\n"
        "def check(arguments):\n"
        "    print('checked', flush=True)\n"
        "    if arguments == ['bad']: sys.exit(2)\n"
        "    return {'preload': arguments != ['bare']}\n"
        "if __name__ == '__main__': print('run')\n"
    )
    options = ("--own-gate", "--preload=heavy", "--check=program:check", "--module=program", "--", argument)
    member = launch(*options, TF_CONFIG=cluster_of(2)[0])
    assert member.wait() == code
    assert member.output == printed


# -- any image -------------------------------------------------------------------------------------------------------


def test_it_is_python_3_9_and_imports_the_standard_library_and_itself_alone() -> None:
    for file in (SOURCE / "dtj_launch").rglob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 9))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported = {str(node.module).partition(".")[0]}
            else:
                continue
            assert imported <= {*sys.stdlib_module_names, "dtj_launch"}, file
