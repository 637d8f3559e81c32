"""Launchers of an elastic job: they start their programs again when the members change, and wait if they are none."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from dtj_launch.rendezvous import probe
from dtj_launch.world import GENERATION, parse
from loopback import free_ports
from support.launched import Launch, Launched, cluster_of
from support.waiting import eventually_true

PROGRAM = (
    sys.executable,
    "-c",
    "import json, os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
    "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))\n"
    "config = json.loads(os.environ['TF_CONFIG'])\n"
    "losses = os.environ.get('DTJ_LOSSES_IN_PLACE')\n"
    "print('task', config['task']['index'], 'of', len(config['cluster']['worker']), 'losses', losses, flush=True)\n"
    "while True: time.sleep(1)",
)
"""Says which task it is; saves and leaves when it is asked to, as the trainer does."""


class Group:
    """The tasks of one job, and the file that tells all of them who trains: a kubelet would keep it up to date."""

    def __init__(self, launch: Launch, folder: Path, workers: int, *, strategy: str = "MultiWorkerMirrored") -> None:
        self._launch, self._file, self._strategy = launch, folder / "world", strategy
        others = ["chief", "ps"] if strategy == "ParameterServer" else []
        addresses = json.loads(cluster_of(workers + len(others))[0])["cluster"]["worker"]
        self.cluster = {role: [addresses.pop()] for role in others} | {"worker": addresses}

    def tell(self, generation: int, *members: int) -> None:
        """Replace the file as a whole: these workers train."""
        indexes = dict.fromkeys(self.cluster, "0") | {"worker": ",".join(map(str, members))}
        addresses = {**self.cluster, "worker": [self.cluster["worker"][member] for member in members]}
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({"generation": generation, "members": indexes, "addresses": addresses}))
        new.replace(self._file)

    def start(
        self, index: int, *options: str, role: str = "worker", program: Sequence[str] = PROGRAM, **environ: str
    ) -> Launched:
        variables = {
            "TF_CONFIG": json.dumps({"cluster": self.cluster, "task": {"type": role, "index": index}}),
            "DTJ_STRATEGY": self._strategy,
            "DTJ_ROLE": role,
            "DTJ_INDEX": str(index),
            "DTJ_JOB_UID": "uid",
            "DTJ_WORLD_FILE": str(self._file),
        }
        return self._launch(*options, "--", *program, **{**variables, **environ})


@pytest.fixture
def group(launch: Launch, tmp_path: Path) -> Callable[[int], Group]:
    return lambda count: Group(launch, tmp_path, count)


@pytest.fixture
def servers(launch: Launch, tmp_path: Path) -> Group:
    return Group(launch, tmp_path, 2, strategy="ParameterServer")


WAITS = "waiting until the operator makes this task a member"


def test_a_worker_that_trains_alone_is_joined_by_another_and_left_again(group: Callable[[int], Group]) -> None:
    workers = group(2)
    workers.tell(0, 0)
    first, second = workers.start(0), workers.start(1)
    first.wait_for("task 0 of 1")
    second.wait_for(WAITS)
    workers.tell(1, 0, 1)
    first.wait_for("task 0 of 2")
    second.wait_for("task 1 of 2")
    workers.tell(2, 1)
    second.wait_for("task 0 of 1")
    first.wait_for(WAITS)
    first.send(signal.SIGTERM)
    assert first.wait() == 143


def test_a_start_with_other_members_counts_as_no_loss_and_one_after_a_lost_peer_does(
    group: Callable[[int], Group],
) -> None:
    workers = group(2)
    workers.tell(0, 0)
    launched = workers.start(0)
    launched.wait_for("task 0 of 1 losses 0")
    launched.send(signal.SIGUSR1)
    launched.wait_for("task 0 of 1 losses 1")
    workers.tell(1, 0, 1)
    workers.start(1)
    launched.wait_for("task 0 of 2 losses 1")


def test_replicas_that_differ_are_those_of_pods_and_not_of_tasks(group: Callable[[int], Group]) -> None:
    program = (
        "import os, sys\n"
        "print('known:', os.environ.get('DTJ_CORRUPT'), flush=True)\n"
        "with open(os.environ['DTJ_TERMINATION_LOG'], 'w') as file:\n"
        """    file.write('a line\\n{"corrupt": {"step": 3, "workers": ["worker-0", "worker-1", "x", 7]}}\\n')\n"""
        "sys.exit(75)"
    )
    workers = group(3)
    workers.tell(0, 2)
    launched = workers.start(2, "--max-restarts-in-place=1", program=(sys.executable, "-c", program))
    assert launched.wait() == 75
    found = {"step": 3, "workers": ["worker-2", "worker-1", "x", "7"]}
    assert f"known: {json.dumps(found | {'start': 1})}" in launched.output
    assert launched.last_words.splitlines() == ["a line", json.dumps({"corrupt": found})]


def test_a_worker_at_the_gate_goes_on_when_the_missing_peer_is_given_up(group: Callable[[int], Group]) -> None:
    workers = group(3)
    workers.tell(0, 0, 1, 2)
    first, third = workers.start(0), workers.start(2)
    workers.tell(1, 0, 2)
    first.wait_for("task 0 of 2")
    third.wait_for("task 1 of 2")


def test_the_same_members_under_a_higher_generation_do_not_disturb_the_program(group: Callable[[int], Group]) -> None:
    workers = group(2)
    workers.tell(0, 0, 1)
    both = first, second = workers.start(0), workers.start(1)
    for launched in both:
        launched.wait_for("task . of 2")
    workers.tell(3, 0, 1)
    (pid,) = first.children
    for launched in both:  # a lost peer: each starts again, and both have to meet under the new generation
        launched.send(signal.SIGUSR1)
    for launched in both:
        launched.wait_for("task . of 2", times=2)
    assert "other members" not in first.output + second.output
    assert first.children != [pid]


def test_a_worker_at_the_gate_meets_one_that_starts_for_a_higher_generation_of_the_same_members(
    group: Callable[[int], Group],
) -> None:
    workers = group(2)
    workers.tell(0, 0, 1)
    first = workers.start(0)
    host, _, port = workers.cluster["worker"][0].rpartition(":")
    eventually_true(lambda: probe((host, int(port))) is None)
    workers.tell(3, 0, 1)
    second = workers.start(1)
    first.wait_for("task 0 of 2")
    second.wait_for("task 1 of 2")
    assert "still ending" not in first.output + second.output


AT_GATE = (
    sys.executable,
    "-c",
    "import http.server, os, signal, sys\n"
    "class Status(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    '        self.wfile.write(b\'HTTP/1.0 200 OK\\r\\n\\r\\n{"phase": "Gate"}\')\n'
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
    f"print('generation', os.environ[{GENERATION!r}], flush=True)\n"
    "http.server.HTTPServer(('127.0.0.1', int(os.environ['DTJ_STATUS_PORT'])), Status).serve_forever()\n",
)
"""Waits for its peers, as the trainer does at a gate of its own."""


def test_a_program_at_its_own_gate_starts_again_for_a_higher_generation_of_the_same_members(
    group: Callable[[int], Group],
) -> None:
    workers, (port,) = group(2), free_ports(1)
    workers.tell(0, 0, 1)
    first = workers.start(0, "--own-gate", program=AT_GATE, DTJ_STATUS_PORT=str(port))
    first.wait_for("generation 0")
    workers.tell(3, 0, 1)
    first.wait_for("generation 3")
    assert "other members" not in first.output


def test_only_the_coordinator_starts_again_when_workers_come_or_go(servers: Group) -> None:
    servers.tell(0, 0)
    chief = servers.start(0, "--own-gate", role="chief")
    first, second = servers.start(0), servers.start(1)
    for each in (chief, first):
        each.wait_for("task 0 of 1")
    second.wait_for(WAITS)
    served = first.children
    servers.tell(1, 0, 1)
    chief.wait_for("task 0 of 2")
    second.wait_for("task 1 of 2")
    assert first.children == served
    served = second.children
    servers.tell(2, 1)  # the second is the first of the list now, and a server that the coordinator may call so
    chief.wait_for("task 0 of 1", times=2)
    first.wait_for(WAITS)
    assert second.children == served
    assert not first.children


def test_a_coordinator_at_the_gate_goes_on_when_the_missing_worker_leaves(servers: Group) -> None:
    servers.tell(0, 0, 1)
    with ExitStack() as listening:
        here, _ = (
            listening.enter_context(socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))
            for address in (servers.cluster["worker"][0], *servers.cluster["ps"])
        )
        chief = servers.start(0, role="chief")
        here.accept()
        servers.tell(1, 0)
        chief.wait_for("task 0 of 1")


def changed(old: str, new: str) -> tuple[str, ...]:
    """The program, with this in the place of that."""
    return *PROGRAM[:2], PROGRAM[2].replace(old, new, 1)


def test_a_pod_that_is_deleted_while_its_program_saves_for_a_change_lets_it_finish(
    group: Callable[[int], Group],
) -> None:
    workers = group(2)
    workers.tell(0, 0)
    slow = changed("sys.exit(42))", "(time.sleep(1), print('saved', flush=True), sys.exit(42)))")
    launched = workers.start(0, program=slow)
    launched.wait_for("task 0 of 1")
    workers.tell(1, 1)
    launched.wait_for("the job goes on with other members")
    launched.send(signal.SIGTERM)
    launched.wait_for("saved")
    assert launched.wait() == 42


def test_a_program_that_does_not_end_when_the_members_change_is_killed_and_the_task_goes_on(
    group: Callable[[int], Group],
) -> None:
    workers = group(2)
    workers.tell(0, 0)
    launched = workers.start(0, "--grace=0.3", program=changed("lambda *_: sys.exit(42)", "signal.SIG_IGN"))
    launched.wait_for("task 0 of 1")
    workers.tell(1, 1)
    launched.wait_for("still running 0.3 s after the request to save: killing it")
    launched.wait_for(WAITS)
    workers.tell(2, 0)
    launched.wait_for("task 0 of 1", times=2)
    assert launched.output.count("killing it") == 1


def test_who_waits_says_so_on_the_status_port(group: Callable[[int], Group]) -> None:
    (port,) = free_ports(1)
    workers = group(2)
    workers.tell(4, 0)
    second = workers.start(1, DTJ_STATUS_PORT=str(port), DTJ_BIND_ADDRESS="127.0.0.1")
    second.wait_for(WAITS)
    with urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as answer:
        status = json.load(answer)
    assert (status["phase"], status["world"]) == ("Waiting", 4)
    workers.tell(5, 1)
    second.wait_for("task 0 of 1")  # and the port is free again for the program
    assert "in use" not in second.output


def test_a_spare_whose_tf_config_does_not_list_it_waits_and_takes_the_place_of_another(
    group: Callable[[int], Group],
) -> None:
    workers = group(3)
    workers.tell(0, 0, 1)
    lists_two = {"cluster": {"worker": workers.cluster["worker"][:2]}, "task": {"type": "worker", "index": 2}}
    spare = workers.start(2, TF_CONFIG=json.dumps(lists_two))
    spare.wait_for(WAITS)
    first = workers.start(0)
    workers.tell(1, 0, 2)
    first.wait_for("task 0 of 2")
    spare.wait_for("task 1 of 2")


def test_what_a_shell_has_started_saves_before_it_starts_again_with_other_members(
    group: Callable[[int], Group], tmp_path: Path
) -> None:
    saves = changed("lambda *_: sys.exit(42)", "lambda *_: (time.sleep(0.5), print('saved', flush=True), sys.exit(42))")
    (tmp_path / "train.py").write_text(saves[2])
    workers = group(2)
    workers.tell(0, 0)
    first = workers.start(0, "--own-gate", program=("sh", "-c", f"{sys.executable} train.py; true"))
    first.wait_for("task 0 of 1")
    workers.tell(1, 0, 1)
    first.wait_for("task 0 of 2")
    assert first.output.count("saved") == 1


def test_a_task_of_a_world_whose_addresses_do_not_fit_into_one_variable_finds_all_of_them(
    launch: Launch, tmp_path: Path
) -> None:
    pattern = "{role}-{index}.digits.default.svc:2222"

    def tell(generation: int, members: str) -> None:
        content = {"generation": generation, "members": {"worker": members}, "address": pattern}
        (tmp_path / "new").write_text(json.dumps(content))
        (tmp_path / "new").replace(tmp_path / "world")

    tell(0, "0-9999")
    environ = {
        "TF_CONFIG": '{"cluster":"too long for one variable","task":{"type":"worker","index":7}}',
        "DTJ_CLUSTER_COUNTS": '{"worker":10000}', "DTJ_CLUSTER_ADDRESS": pattern, "DTJ_STRATEGY": "MultiWorkerMirrored",
        "DTJ_ROLE": "worker", "DTJ_INDEX": "7", "DTJ_JOB_UID": "uid", "DTJ_WORLD_FILE": str(tmp_path / "world"),
    }  # fmt: skip
    launched = launch("--own-gate", "--", *PROGRAM, **environ)
    launched.wait_for("task 7 of 10000")
    tell(1, "0-2,4-9000")
    launched.wait_for("task 6 of 9000")
    tell(2, "0,7")
    launched.wait_for("task 1 of 2")


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"generation": 1, "members": {"worker": "0-1"}, "addresses": {}}']
)
def test_a_file_that_holds_no_list_of_members_is_one_line_and_2(launch: Launch, tmp_path: Path, content: str) -> None:
    (tmp_path / "world").write_text(content)
    launched = launch("--", "true", DTJ_WORLD_FILE=str(tmp_path / "world"))
    assert launched.wait() == 2
    assert launched.output.startswith(f"dtj-launch: DTJ_WORLD_FILE={tmp_path / 'world'}: holds no list of members")
    assert launched.output.count("\n") == 1
    assert launched.last_words == launched.output.removeprefix("dtj-launch: "), "it may hold one at the next start"


def test_a_pattern_of_addresses_is_filled_in_for_each_member() -> None:
    world = parse(
        '{"generation": 7, "members": {"chief": "0", "worker": "0-1,3"}, "address": "{role}-{index}.j.n.svc:1"}'
    )
    assert world.addresses == {
        "chief": ("chief-0.j.n.svc:1",),
        "worker": ("worker-0.j.n.svc:1", "worker-1.j.n.svc:1", "worker-3.j.n.svc:1"),
    }
    assert (world.place("worker", 3), world.place("worker", 2)) == (2, None)
