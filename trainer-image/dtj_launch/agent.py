"""From the launcher's command line to its exit code: one program, started once or again and again in its place."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from . import child, communication, devices, gpu_checks, ledger, logs, options
from .deadline import Deadlines
from .errors import CORRUPT_VARIABLE, LauncherError, NotStarted, Unavailable, UsageError
from .nccl_log import NcclLog
from .options import Options
from .out_of_memory import out_of_memory_kills
from .output import TerminationMessage, configure_logs, flush, write
from .progress import Phase, ProgressStore
from .rendezvous import PeersMissing, ReadinessListener, rendezvous, wait_for_peers
from .restart_in_place import KILLED, PEER_LOST, PREEMPTED, ExitRecord, Policy
from .signal_relay import TO_GO, Relay
from .status_client import StatusPoller, status_port
from .status_server import serve_status
from .topology import RestartRole, TaskTopology, topology_of
from .world import Membership, gate_patience, membership

log = logging.getLogger(__name__)

_SAVE_SECONDS = 30.0
"""For which a program may save before it starts again with other members: as long as a pod that is deleted has."""

_HASH_SEED = "PYTHONHASHSEED"
"""Python reads it as it begins, and not when it forks."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs to the end of the process."""
    words = TerminationMessage(os.environ.get("DTJ_TERMINATION_LOG"))
    configure_logs(logs.from_environment(os.environ), os.environ)
    try:
        given = options.read(sys.argv[1:] if argv is None else argv, os.environ)
        configure_logs(given.log, os.environ)
        if given.preload and argv is None:
            _begin_with_hash_seed()
        launcher = Launcher(given, words)
        try:
            code = launcher.run()
        finally:
            launcher.end()
    except LauncherError as error:
        log.error(str(error))
        words.leave(error.last_words)
        code = error.exit_code
    _leave(code)


def _begin_with_hash_seed() -> None:
    """Begins this process anew where what it forks would order sets of texts otherwise than other tasks and starts."""
    command = getattr(sys, "orig_argv", None)  # since Python 3.10
    if command and not os.environ.get(_HASH_SEED):
        os.environ[_HASH_SEED] = "0"
        os.execv(sys.executable, command)


class _OtherWorld(Exception):
    """An elastic job has another world by now than the one whose members this task waited for."""


class Launcher:
    """One task's program, start after start."""

    def __init__(self, given: Options, words: TerminationMessage) -> None:
        """Raises:
        UsageError: TF_CONFIG cannot be read.
        Unavailable: the file that DTJ_WORLD_FILE names cannot be read.
        """
        self._given = given
        self._words = words
        self._world = membership(os.environ)
        if self._world is not None and self._world.place is None:
            os.environ.update(self._world.pretend())
        self._topology = topology_of(os.environ)
        self._policy = Policy(
            self._topology.restart_role if given.restarts else RestartRole.ALONE,
            most=given.max_restarts,
            replace_single_pod=given.replace_single_pod,
        )
        self._relay = Relay(grace=given.grace, leave=_leave)
        self._wakeup = self._relay.listen()
        self._devices = devices.found(os.environ, given.communication)
        self._nccl = NcclLog(os.environ, gpus=self._devices.gpus)
        self._ledger = ledger.make_file()
        self._preloaded = False
        self._starts = self._losses = 0
        child.adopt_orphans()

    def run(self) -> int:
        """The exit code.

        Raises:
            NotStarted: the peers did not come in time.
            UsageError, Unavailable: the port of this task is in use, or its GPUs cannot be used.
        """
        code = self._check()
        if code is not None:
            return code
        gpu_checks.check(os.environ, self._given.communication)
        self._preload()
        while True:
            self._words.forget()
            self._join()
            try:
                self._gate()
            except _OtherWorld:
                continue
            end, left = self._start()
            end = replace(end, code=self._given.codes.get(end.code, end.code))
            self._losses += end.code in (PEER_LOST, KILLED)
            if left and not end.termination_requested:
                self._starts += 1
                continue
            found = self._corrupt()
            restart = self._policy.after(end)
            if restart is None:
                return end.code
            self._starts += 1
            if found:
                # The same step may be found again: with the number of the start it is another finding.
                os.environ[CORRUPT_VARIABLE] = json.dumps({**found, "start": self._starts})
                restart = replace(restart, why="replicas differ")
            wait = f"after {restart.pause:g} s" if restart.pause else "at once"
            log.info(
                f"{restart.why} (exit code {end.code}): starting again in place, {wait}; the {_th(self._starts)} time"
            )
            time.sleep(restart.pause)

    def end(self) -> None:
        """Leaves nothing behind."""
        self._nccl.end()

    def _corrupt(self) -> Mapping[str, Any]:
        """What the program has left of replicas that differ. In an elastic job it names tasks, and the operator looks
        for pods: it gets their names."""
        found = self._words.corrupt
        if self._world is not None and isinstance(found.get("workers"), list):
            found["workers"] = [self._world.pod_of(str(task)) for task in found["workers"]]
            self._words.corrupt = found
        return found

    # -- before the program --------------------------------------------------------------------------------------

    def _check(self) -> int | None:
        """Has the arguments judged before anything that takes time; the exit code where they are wrong."""
        given = self._given
        if given.module is None or given.check is None:
            return None
        ours, theirs = os.pipe()
        target = child.run_check(*given.check, given.command, answer=theirs)
        children: list[int] = []
        child.fork(target, started=children.append, close=[ours, self._wakeup])
        os.close(theirs)
        with open(ours, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(children[0], 0)
        if not answer:
            return _exit_code(os.waitstatus_to_exitcode(status))
        checked = json.loads(answer)
        self._given = replace(
            given,
            start_timeout=checked.get("start_timeout", given.start_timeout),
            preload=given.preload if checked.get("preload", True) else (),
        )
        return None

    def _preload(self) -> None:
        """Imports what every start would import, where starts may follow; runs nothing of it."""
        if not self._given.preload or self._topology.restart_role not in (RestartRole.MEMBER, RestartRole.COORDINATOR):
            return
        if not self._given.restarts or not self._given.max_restarts:
            return
        try:
            child.preload(self._given.preload)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it is, there is another way
            log.warning(f"--preload failed, so each start imports again: {type(error).__name__}: {error}")
            return
        self._preloaded = True

    def _join(self) -> None:
        """In an elastic job: waits until this task is a member, and tells its program who the others are."""
        world = self._world
        if world is None:
            return
        world.look()
        if world.place is None:
            self._wait_for_a_place(world)
        os.environ.update(world.join())
        self._topology = topology_of(os.environ)

    def _wait_for_a_place(self, world: Membership) -> None:
        """Shows the operator on the status port that this task is ready to join."""
        store, port = ProgressStore(), status_port(os.environ)
        store.update(phase=Phase.WAITING, world=world.latest.generation)
        status = serve_status(store, port, host=os.environ.get("DTJ_BIND_ADDRESS", "")) if port else None
        log.info("waiting until the operator makes this task a member")
        try:
            while world.place is None:
                time.sleep(world.look())
        finally:
            if status is not None:  # the program listens there, and is forked where no other thread runs
                status.close()

    def _gate(self) -> None:
        topology = self._topology
        if self._given.own_gate:
            return
        if not topology.peers:
            self._agree({})
            return
        seconds = self._limit()
        try:
            if topology.restart_role is not RestartRole.MEMBER or topology.port is None:
                wait_for_peers(topology.peers, timeout=seconds, pause=self._pause_at_gate)
                return
            listener = _listen(topology.port, topology, announced=str(self._devices))
            try:
                heard = rendezvous(
                    listener,
                    topology.peers,
                    name=topology.name,
                    attempt=topology.attempt,
                    key=topology.key,
                    timeout=seconds,
                    patience=gate_patience(os.environ),
                    pause=self._pause_at_gate,
                )
            finally:
                listener.close()
        except PeersMissing as missing:
            flag = "--rejoin-timeout" if self._starts else "--start-timeout"
            raise NotStarted(f"start gate: {missing}; see why they did not start, or raise {flag}") from None
        self._agree(heard)

    def _agree(self, heard: Mapping[str, str]) -> None:
        """Tells the program how the members of its collective send gradients.

        Raises:
            UsageError: they cannot.
        """
        if self._topology.restart_role is not RestartRole.MEMBER:
            return
        try:
            chosen, line = communication.agree(heard, name=self._topology.name, own=self._devices)
        except communication.CommunicationError as error:
            raise UsageError(f"start gate: {error}") from None
        os.environ[communication.VARIABLE] = chosen
        if line:
            log.info(line)
        if chosen == communication.NCCL:
            log.info(
                "TensorFlow takes NCCL only if it is asked for: MultiWorkerMirroredStrategy(communication_options="
                "tf.distribute.experimental.CommunicationOptions(implementation=os.environ['DTJ_COMMUNICATION']))"
            )

    def _pause_at_gate(self, seconds: float) -> None:
        """Raises:
        _OtherWorld: a newer world is known. Those that start for it answer no handshake of an older one.
        """
        time.sleep(seconds)
        if self._world is not None:
            self._world.look()
            if self._world.outdated:
                raise _OtherWorld

    def _limit(self) -> float:
        """Seconds to wait for the peers."""
        given = self._given
        return min(given.rejoin_timeout, given.start_timeout) if self._starts else given.start_timeout

    # -- the program ---------------------------------------------------------------------------------------------

    def _start(self) -> tuple[ExitRecord, bool]:
        """Starts the program and returns how it ended, and whether it was to start again with other members; nothing of
        it is left then."""
        killed_before = out_of_memory_kills()
        began = time.monotonic()
        deadlines = Deadlines()
        close = [self._wakeup, *deadlines.sources]
        children: list[int] = []

        def started(pid: int) -> None:
            children.append(pid)
            self._relay.aim(pid)

        child.fork(self._program(deadlines), started=started, close=close)
        deadlines.hand_over()
        poller = StatusPoller(status_port(os.environ), host=os.environ.get("DTJ_BIND_ADDRESS", ""))
        code = deadlines.exit_code(self._follow(children[0], poller, deadlines))
        starts_again = self._relay.saves
        deadlines.close()
        self._nccl.poll(_pass_on, at_once=True)
        child.signal_group(children[0], signal.SIGKILL)
        child.kill_children()
        self._relay.aim(None)
        seconds = time.monotonic() - began
        record = ExitRecord(
            code=code,
            seconds=seconds,
            step=poller.step,
            # What was seen a second ago may be over, but no gate gives up before its time.
            at_gate=poller.at_gate and seconds >= self._limit(),
            termination_requested=self._relay.termination_requested,
            out_of_memory=killed_before is not None and out_of_memory_kills() != killed_before,
        )
        return record, starts_again

    def _program(self, deadlines: Deadlines) -> Callable[[], NoReturn]:
        given = self._given
        variables = {"DTJ_RESTARTS_IN_PLACE": str(self._starts), "DTJ_LOSSES_IN_PLACE": str(self._losses)}
        variables.update({**deadlines.variables, **self._nccl.begin()})
        variables.update(ledger.variables(self._ledger))
        if self._starts:
            variables["DTJ_REJOIN_SECONDS"] = f"{self._limit():g}"
        if given.module is not None and self._preloaded:
            return child.run_module(given.module, given.command, variables)
        command = given.command if given.module is None else (sys.executable, "-m", given.module, *given.command)
        # The order of a set of texts, such as the names of classes, has to be the same on all tasks and in all starts.
        variables[_HASH_SEED] = os.environ.get(_HASH_SEED) or "0"
        return child.run_command(command, {**os.environ, **variables})

    def _follow(self, program: int, poller: StatusPoller, deadlines: Deadlines) -> int:
        """Waits until the program has ended; its exit code.

        A shell that is asked to stop ends at once, while the program that it has started saves: then that one counts.
        Where it ends with 0 the shell's code does, which has not run all that it was to run.
        """
        code = 0
        followed = {program}
        while True:
            for pid, ended in _reaped():
                if pid not in followed:
                    continue
                if pid == program or (ended and -code in TO_GO) or ended == PREEMPTED:
                    code = ended
                followed.remove(pid)
                if -ended in TO_GO and self._relay.asked_to_go:
                    followed.update(child.children_in(program))
            if not followed:
                return _exit_code(code)
            look = self._look_at_members(at_gate=poller.at_gate)
            stuck = deadlines.enforce(program, termination_requested=self._relay.asked_to_go)
            due = (self._relay.enforce(), look, stuck, poller.poll(), self._nccl.poll(_pass_on))
            waits = [wait for wait in due if wait is not None]
            sources = [self._wakeup, *deadlines.sources]
            ready, _, _ = select.select(sources, [], [], min(waits) if waits else None)
            for source in ready:
                if source == self._wakeup:
                    os.read(self._wakeup, 512)
                else:
                    deadlines.read()

    def _look_at_members(self, *, at_gate: bool) -> float | None:
        """Has the program save and end where it is to go on with other members, and a server end where it is none of
        them; returns the seconds until the next look.

        Args:
            at_gate: whether the program waits for its peers at a gate of its own, see `_pause_at_gate`.
        """
        if self._world is None:
            return None
        left = self._world.look()
        serves = self._topology.restart_role is RestartRole.SERVER
        changed = self._world.left if serves else self._world.changed
        meets_nobody = at_gate and self._world.outdated and not serves
        if (changed or meets_nobody) and not self._relay.asked_to_go:
            what = "ends" if serves else "saves, and starts again"
            members = "other members" if changed else "the same members, which start again"
            log.info(f"the job goes on with {members}: the program {what}")
            self._relay.have_it_save(self._given.grace or _SAVE_SECONDS)
        return left


def _listen(port: int, topology: TaskTopology, *, announced: str) -> ReadinessListener:
    try:
        return ReadinessListener(
            port,
            name=topology.name,
            attempt=topology.attempt,
            key=topology.key,
            host=topology.host,
            announced=announced,
        )
    except OSError as error:
        raise Unavailable(
            f"TF_CONFIG: port {port} of {topology.name}: {os.strerror(error.errno or 0)}; "
            "end the process that has it, or give another port"
        ) from None


def _reaped() -> Iterator[tuple[int, int]]:
    """Lets go of processes that have ended, orphans too: their numbers, and exit codes or the signals, negative."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def _exit_code(code: int) -> int:
    """Of a process that a signal has ended, what a shell says."""
    return code if code >= 0 else 128 - code


def _th(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _pass_on(line: bytes) -> None:
    """Says a warning of NCCL's next to what the program says, which may end of it."""
    write(2, line)


def _leave(code: int) -> NoReturn:
    """At once: what was imported may have threads, and has nothing to clean up."""
    flush()
    os._exit(code)
