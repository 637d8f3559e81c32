"""``dtj run``: runs manifests on this machine, one after the other."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from dtj.api.json import JsonObject, dig
from dtj.api.names import Label
from dtj.cli.common.console import Console, Screen, Text, unfailing_console
from dtj.cli.common.formatting import listed, shown_path
from dtj.cli.common.job_view import strategy_words
from dtj.cli.common.submission import files_named
from dtj.cli.common.terminal import Exit, signals_that_end
from dtj.cli.run.live import screen
from dtj.cli.run.summary import RunPlace, end_lines, print_summary, width_of
from dtj.client.checks import Manifest, check
from dtj.client.manifest_files import STDIN
from dtj.core.manifests.accelerators import accelerator_of
from dtj.core.manifests.pod import first_pods
from dtj.core.platform import Platform
from dtj.core.pod_state import main_container_of
from dtj.engine.logs import TextFormatter
from dtj.local import machine, run_directory
from dtj.local.log_warnings import warnings_of
from dtj.local.pod_command import image_of, omissions_of, problems_of
from dtj.local.ports import NoFreePort, local_network
from dtj.local.run_directory import RunDirectory, RunError
from dtj.local.runner import End, FinishedRun, LocalRun
from dtj.local.trainer import NoTrainer, Trainer, find_trainer
from dtj.local.view import RunView

_ROLE: Final = ("metadata", "labels", Label.ROLE)


class Refused(Exception):
    """A run that cannot start; each argument gives a reason and its remedy in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command, which as it was typed is ``command``, with the options that a next run needs too."""

    runs: Path
    resume: bool
    timeout: float | None
    ignore_memory: bool
    command: tuple[str, ...]


def run_files(files: tuple[str, ...], options: Options, *, trainer_python: str | None) -> int:
    """Run the jobs of these files on this machine, in order, up to the first that does not succeed. Returns the exit
    code."""
    output, errors = unfailing_console(), unfailing_console(stderr=True)
    checked = check(files, Platform())
    for note in checked.notes:
        errors.print(Text(note), soft_wrap=True)
    try:
        if checked.problems:
            raise Refused(*checked.problems)
        trainer = find_trainer(trainer_python, os.environ)
        for number, manifest in enumerate(checked.manifests):
            if number:
                output.print()
            code = _run_one(manifest, options, trainer, output)
            if code != Exit.OK:
                rest = [later.job.name for later in checked.manifests[number + 1 :]]
                if rest:
                    output.print(Text(f"Not run: {listed(rest)}."), soft_wrap=True)
                return code
    except (Refused, NoTrainer) as error:
        for line in error.args:
            errors.print(Text(line), soft_wrap=True)
        return Exit.USAGE
    return Exit.OK


def _run_one(manifest: Manifest, options: Options, trainer: Trainer, console: Console) -> int:
    """Run one job to its end. Raises Refused if it cannot start."""
    # As on this machine, where each process has the addresses of all in its own environment.
    pods = first_pods(manifest.job, manifest.spec, platform=Platform(inline_addresses=None))
    _check_environment(manifest, pods)
    if not options.ignore_memory:
        _check_memory(manifest)
    base = Path.cwd()
    with ExitStack() as stack:
        earlier, directory = _directory(manifest, options, stack)
        place = RunPlace(
            document=manifest.document,
            directory=directory,
            base=base,
            command=options.command,
            files=files_named(pods, base),
            tensorboard=_tensorboard(trainer, base),
        )
        shown = screen(console)
        for line in _first_lines(manifest, pods, trainer, place):
            shown.say(line)
        if options.resume and not earlier:
            shown.say("There is no earlier run to resume: this is the first.")
        stack.enter_context(_logging_to(directory.runner_log))
        ended, code = asyncio.run(_follow(manifest, directory, options, trainer, shown))
    warnings = warnings_of(directory.replica_logs())
    print_summary(console, end_lines(ended, place, warnings=warnings, width=width_of(console)))
    return code


async def _follow(
    manifest: Manifest, directory: RunDirectory, options: Options, trainer: Trainer, shown: Screen[RunView]
) -> tuple[FinishedRun, int]:
    """Run the job and show it; the exit code says how it ended."""
    try:
        with local_network(manifest.spec) as network, shown.shown():
            running = LocalRun(
                manifest.body,
                directory=directory,
                network=network,
                trainer=trainer,
                environ=os.environ,
                command=_again(manifest, options),
            )
            stop_signals = _StopSignals(running, shown)
            with stop_signals.installed(timeout=options.timeout):
                ended = await running.run(shown.show)
    except NoFreePort as error:
        raise Refused(f"{manifest.document.title}: {error}") from error
    return ended, _exit_code(ended, stop_signals, manifest)


def _again(manifest: Manifest, options: Options) -> tuple[str, ...]:
    """The command that runs this job, as it was typed."""
    return (*options.command, *(("--resume",) if options.resume else ()), manifest.document.path or STDIN)


class _StopSignals:
    """What stops a run before its end: a signal, or the timeout."""

    def __init__(self, running: LocalRun, shown: Screen[RunView]) -> None:
        self._running = running
        self._shown = shown
        self.exit_code = 0

    @contextmanager
    def installed(self, *, timeout: float | None) -> Iterator[None]:
        """Handle signals and the timeout until the end of the block."""
        loop = asyncio.get_running_loop()
        numbers = signals_that_end()
        for number in numbers:
            loop.add_signal_handler(number, partial(self._on_signal, number))
        timer = loop.call_later(timeout, self._on_timeout) if timeout is not None else None
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
            if timer is not None:
                timer.cancel()

    def _on_signal(self, number: signal.Signals) -> None:
        if self.exit_code and number == signal.SIGHUP:
            return  # of a closed terminal the shell tells its jobs, and so does the kernel when the shell has ended
        if self.exit_code:
            self._running.kill()
            self._shown.say("Killing the processes.")
            return
        self.exit_code = Exit.SIGNAL + number
        self._stop("Stopping: the processes save a checkpoint and end. Press Ctrl-C again to kill them.")

    def _on_timeout(self) -> None:
        if not self.exit_code:
            self.exit_code = Exit.TIMEOUT
            self._stop("The --timeout has expired: the processes save a checkpoint and end.")

    def _stop(self, words: str) -> None:
        self._running.stop()
        self._shown.say(words)


def _exit_code(ended: FinishedRun, stop_signals: _StopSignals, manifest: Manifest) -> int:
    match ended.end:
        case End.SUCCEEDED:
            return Exit.OK
        case End.INVALID:
            return Exit.USAGE
        case End.STOPPED:
            return stop_signals.exit_code
        case End.FAILED:
            cause = ended.status.root_cause
            refused = cause is not None and cause.exit_code == Exit.USAGE and not _has_own_command(manifest, cause.role)
            return Exit.USAGE if refused else Exit.FAILED


def _has_own_command(manifest: Manifest, role: str) -> bool:
    """Whether the replicas of a role run another program than the trainer, which says with the code 2 that it refuses
    its arguments: in others it may mean anything."""
    pods = first_pods(manifest.job, manifest.spec, platform=Platform(inline_addresses=None))
    return any(main_container_of(pod).get("command") for pod in pods if dig(pod, *_ROLE) == role)


def _check_memory(manifest: Manifest) -> None:
    memory = machine.memory(manifest.spec)
    if memory is not None and memory.needed > memory.available:
        raise Refused(
            f"{manifest.document.title}: about {memory.needed // machine.MIB} MiB of memory are needed, "
            f"{memory.available // machine.MIB} MiB are free: use fewer replicas, or --ignore-memory"
        )


def _check_environment(manifest: Manifest, pods: tuple[JsonObject, ...]) -> None:
    """Refuse what the gateway would refuse too, before the run has a folder."""
    found = dict.fromkeys(problem for pod in pods for problem in problems_of(pod, os.environ))
    if found:
        raise Refused(*(f"{manifest.document.title}: {problem}" for problem in found))


def _directory(manifest: Manifest, options: Options, stack: ExitStack) -> tuple[bool, RunDirectory]:
    """Where to run, and whether an earlier run was there. ``stack`` keeps the folder locked. Raises Refused."""
    job = manifest.job.name
    _check_name(options.runs)
    try:
        earlier = run_directory.latest(options.runs, job=job) if options.resume else None
        directory = earlier or run_directory.create(options.runs, job=job, now=datetime.now())
        stack.enter_context(directory.locked())
        if earlier is not None:
            run_directory.prepare_again(earlier)
        content = yaml.safe_dump(manifest.body, sort_keys=False)
        run_directory.write_privately(directory.manifest, content.encode())
    except RunError as error:
        raise Refused(f"--resume: {error}") from error
    except OSError as error:
        raise Refused(
            f"{error.filename or options.runs}: cannot be written: {error.strerror}; "
            "choose another folder with --output-dir"
        ) from error
    return earlier is not None, directory


def _check_name(runs: Path) -> None:
    """Refuse a folder whose name the variables of a pod, which are UTF-8, cannot hold."""
    try:
        str(runs.absolute()).encode()
    except UnicodeEncodeError:
        raise Refused(f"{runs.absolute()}: its name is not UTF-8; choose another folder with --output-dir") from None


def _tensorboard(trainer: Trainer, base: Path) -> str:
    """What to type for TensorBoard: it is beside the trainer, where the PATH has none."""
    if shutil.which("tensorboard"):
        return "tensorboard"
    return shown_path(trainer.python.with_name("tensorboard"), base=base)


def _first_lines(manifest: Manifest, pods: tuple[JsonObject, ...], trainer: Trainer, place: RunPlace) -> Iterator[str]:
    """What will be run, where, and which fields of the manifest have no effect on this machine."""
    spec = manifest.spec
    yield f"{manifest.job.name}: {strategy_words(spec)}, in {place.shown(place.directory.path)}"
    python = shown_path(trainer.python, base=place.base)
    for image in dict.fromkeys(filter(None, map(image_of, pods))):
        yield f"Image {image} is not pulled: the command runs with {python}."
    if spec.run_policy.suspend:
        yield "The job is suspended, but runs at once: on this machine you start it yourself."
    if any(accelerator_of(spec, role) is not None for role in spec.roles()):
        yield "Accelerators are not allocated: TensorFlow uses the GPUs or TPUs that it finds on this machine."
    yield f"To follow the logs, type in another terminal: tail -f {place.logs_of_replicas}"
    if not all(main_container_of(pod).get("command") for pod in pods):  # the trainer's own
        yield "Each process first imports TensorFlow: this takes some seconds, on a busy machine up to a minute."
    omitted = dict.fromkeys(part for pod in pods for part in omissions_of(pod))
    if omitted:
        yield f"Ignored on this machine: {listed(omitted)}."


@contextmanager
def _logging_to(file: Path) -> Iterator[None]:
    """Log the decisions of the controller to a file of the run."""
    run_directory.append_privately(file).close()
    handler = logging.FileHandler(file)
    handler.setFormatter(TextFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
