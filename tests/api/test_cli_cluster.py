"""The acting commands as a person types them, against a real API server with the operator at work."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from dataclasses import replace

import pytest
import yaml

from bad_pods import resources
from builders import manifest
from patience import PATIENCE_SECONDS
from support.command_line import CommandLine
from support.job_world import JobWorld
from support.local_runs import write

KIND = "distributedtrainingjob.training.dtj.dev"
ELASTIC = {"maxReplicas": 4}


def read_until(process: subprocess.Popen[str], *words: str) -> str:
    """The lines up to the one that completes ``words``. It must come."""
    assert process.stdout is not None
    impatience = threading.Timer(PATIENCE_SECONDS, process.kill)
    impatience.start()
    seen = ""
    try:
        for line in process.stdout:
            seen += line
            if all(word in seen for word in words):
                return seen
    finally:
        impatience.cancel()
    raise AssertionError(f"{words} were not said:\n{seen}")


# -- submit ---------------------------------------------------------------------------------------------------


def test_submitting_has_kubectls_words_and_a_second_time_says_what_to_do(world: JobWorld, dtj: CommandLine) -> None:
    file = write(dtj.folder, manifest("a"), manifest("b"))
    done = dtj.run("submit", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{KIND}/a created\n{KIND}/b created\n", "")
    again = dtj.run("submit", file)
    assert (again.returncode, again.stdout) == (4, "")
    first, second = again.stderr.splitlines()
    assert first.startswith(f'{file}: document 1 (a): distributedtrainingjobs.training.dtj.dev "a" already exists: ')
    assert "delete that job first (" in first
    assert f"delete a -n {world.namespace} --kubeconfig" in first
    assert '"b" already exists' in second


def test_what_only_the_api_of_pods_knows_is_found_before_any_job_is_created(world: JobWorld, dtj: CommandLine) -> None:
    bad = manifest("bad", template={"spec": resources(limits={"cpu": 1}, requests={"cpu": 2})})
    file = write(dtj.folder, manifest("good"), bad)
    words = (
        f"{file}: document 2 (bad): spec.template.spec.containers[0].resources.requests: Invalid value: "
        '"2": must be less than or equal to cpu limit of 1\n'
    )
    checked, submitted = dtj.run("validate", "--server", file), dtj.run("submit", file)
    assert (checked.returncode, checked.stdout, checked.stderr) == (2, f"{file}: good: valid\n", words)
    assert (submitted.returncode, submitted.stdout, submitted.stderr) == (2, "", words)
    assert world.jobs() == []
    trainee = replace(dtj, kubeconfig=world.user("trainee", "create"))
    unasked = trainee.run("validate", "--server", write(dtj.folder, manifest("good")))
    assert (unasked.returncode, unasked.stdout) == (4, "")
    assert 'good: not all was checked: pods is forbidden: User "trainee" cannot create' in unasked.stderr


# -- run --cluster ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("operator")
def test_a_job_is_followed_to_its_success(world: JobWorld, dtj: CommandLine) -> None:
    running = dtj.start("run", "--cluster", write(dtj.folder, manifest()))
    first = read_until(running, "Starting")
    assert first.startswith(f"digits: MultiWorkerMirrored with 2 workers, submitted to namespace {world.namespace}\n")
    world.await_pods(["worker-0", "worker-1"])
    world.run_pods()
    read_until(running, "Running  2/2")
    world.end_pod("digits-worker-0", exit_code=0)
    output, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, errors) == (0, "")
    assert re.search(r"^\d\d:\d\d:\d\d  Succeeded$", output, re.MULTILINE)
    assert re.search(r"^digits  Succeeded ", output, re.MULTILINE)
    assert "\x1b" not in output
    assert "continues to run" not in output


@pytest.mark.usefixtures("operator")
def test_a_job_that_restarts_and_fails_says_both_and_who_was_first(world: JobWorld, dtj: CommandLine) -> None:
    file = write(dtj.folder, manifest(runPolicy={"backoffLimit": 1}), manifest("later"))
    running = dtj.start("run", "--cluster", file)
    read_until(running, "Starting")
    world.run_pods()
    world.await_state("Running")
    world.end_pod("digits-worker-1", exit_code=3, message="no space left")
    world.await_pods(["worker-0-r1", "worker-1", "worker-1-r1"])
    restarted = read_until(running, "attempt 2: ")  # a state that is over when the program looks is not shown
    world.run_pods()
    world.end_pod("digits-worker-1-r1", exit_code=3, message="No space left on device")
    output, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, errors) == (1, "")
    assert re.search(r"^\d\d:\d\d:\d\d  Restarting  .*attempt 2: worker-1 ", restarted, re.MULTILINE), restarted
    assert re.search(r"^digits  Failed ", output, re.MULTILINE)
    assert re.search(r"^Root cause\n  worker-1 exited with code 3  \[", output, re.MULTILINE)
    assert "logs digits" in output
    assert output.endswith("Not submitted: later.\n")
    assert len(world.jobs()) == 1


@pytest.mark.usefixtures("operator")
def test_ctrl_c_leaves_the_job_which_goes_on_and_says_how_to_come_back(world: JobWorld, dtj: CommandLine) -> None:
    running = dtj.start("run", "--cluster", write(dtj.folder, manifest(), manifest("later")))
    read_until(running, "Starting")
    world.await_pods(["worker-0", "worker-1"])
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, errors) == (130, "")
    _, detached, rest = output.partition(
        "Detached. digits continues to run on the cluster.\nNext\n"
    )  # news may come before
    assert detached, output
    assert f"wait digits -n {world.namespace}" in rest
    assert rest.endswith("Not submitted: later.\n"), output
    assert set(world.pods()) == {"digits-worker-0", "digits-worker-1"}


@pytest.mark.usefixtures("operator")
def test_when_the_time_is_over_the_job_goes_on_too(world: JobWorld, dtj: CommandLine) -> None:
    done = dtj.run("run", "--cluster", write(dtj.folder, manifest()), "--timeout", "0.5")
    assert done.returncode == 3, done.stderr
    assert "The --timeout has expired. digits continues to run on the cluster.\n" in done.stdout
    assert not world.job().status.terminal


@pytest.mark.usefixtures("operator")
def test_a_job_that_the_cluster_cannot_run_as_it_is_written_is_bad_input(world: JobWorld, dtj: CommandLine) -> None:
    done = dtj.run("run", "--cluster", write(dtj.folder, manifest(accelerator={"profile": "abacus"})))
    assert done.returncode == 2
    assert ': spec.accelerator.profile: there is no accelerator profile "abacus"' in done.stdout
    assert world.pods() == {}


@pytest.mark.usefixtures("operator")
def test_who_may_not_see_pods_still_sees_the_job(world: JobWorld, dtj: CommandLine) -> None:
    trainee = replace(dtj, kubeconfig=world.user("trainee", "create", "get", "list", "watch"))
    running = trainee.start("run", "--cluster", write(trainee.folder, manifest()))
    read_until(running, "Starting")
    world.await_pods(["worker-0", "worker-1"])
    world.run_pods()
    world.end_pod("digits-worker-0", exit_code=0)
    output, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, errors) == (0, "")
    assert "digits  Succeeded" in output


# -- wait -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("operator")
def test_waiting_ends_with_the_right_code(world: JobWorld, dtj: CommandLine) -> None:
    for name in ("good", "bad"):
        world.begin(name, runPolicy={"backoffLimit": 0})
    late = dtj.run("wait", "dtj/good", "--timeout", "200ms")
    assert (late.returncode, late.stdout) == (3, "")
    assert re.fullmatch(r"good: not at its end after 0\.2 s; it is Starting .*\n", late.stderr)
    for name in ("good", "bad"):
        world.run_pods(name)
    ready = dtj.run("wait", "good", "--for", "ready", "--timeout", f"{PATIENCE_SECONDS:.0f}s")
    assert (ready.returncode, ready.stdout) == (0, f"{KIND}/good condition met\n")
    world.end_pod("good-worker-0", exit_code=0)
    world.end_pod("bad-worker-0", exit_code=3)
    good, bad = dtj.run("wait", "good"), dtj.run("wait", "bad")
    assert (good.returncode, good.stdout, good.stderr) == (0, f"{KIND}/good complete\n", "")
    assert (bad.returncode, bad.stdout) == (1, f"{KIND}/bad failed\n")
    assert bad.stderr.startswith("bad: ")
    hopeless = dtj.run("wait", "bad", "--for", "complete")
    assert (hopeless.returncode, hopeless.stdout) == (1, "")
    assert hopeless.stderr == "bad: has ended (Failed), and will never be Complete\n"


def test_ctrl_c_ends_a_wait_and_says_that_the_job_goes_on(world: JobWorld, dtj: CommandLine) -> None:
    world.submit()
    mark = world.plane.audit.mark()
    waiting = dtj.start("wait", "digits")
    world.await_watch(since=mark)
    waiting.send_signal(signal.SIGINT)
    output, errors = waiting.communicate(timeout=PATIENCE_SECONDS)
    assert (waiting.returncode, output) == (130, "")
    assert errors.startswith("digits continues to run; wait again: ")


# -- suspend, resume, scale, delete -------------------------------------------------------------------------------


@pytest.mark.usefixtures("operator")
def test_a_job_is_suspended_resumed_scaled_and_deleted(world: JobWorld, dtj: CommandLine) -> None:
    world.begin(elastic=ELASTIC)
    suspended = dtj.run("suspend", "digits", "--wait", "--timeout", f"{PATIENCE_SECONDS:.0f}s")
    assert (suspended.returncode, suspended.stdout) == (0, f"{KIND}/digits suspended\n")
    assert world.pods() == {}
    resumed = dtj.run("resume", f"{KIND}/digits")
    assert (resumed.returncode, resumed.stdout) == (0, f"{KIND}/digits resumed\n")
    world.await_pods(["worker-0-r1", "worker-1-r1"])
    scaled = dtj.run("scale", "digits", "--replicas", 3)
    assert (scaled.returncode, scaled.stdout) == (0, f"{KIND}/digits scaled\n")
    world.await_pods(["worker-0-r2", "worker-1-r2", "worker-2-r2"])
    deleted = dtj.run("delete", "digits", "--wait")
    assert (deleted.returncode, deleted.stdout) == (0, f'{KIND} "digits" deleted\n')
    assert (world.jobs(), world.pods()) == ([], {})


def test_one_that_is_not_there_does_not_keep_the_others_from_being_deleted(world: JobWorld, dtj: CommandLine) -> None:
    world.submit("a")
    world.submit("b")
    done = dtj.run("delete", "a", "none", "b", "a")
    assert done.returncode == 4
    assert done.stdout == f'{KIND} "a" deleted\n{KIND} "b" deleted\n'
    assert done.stderr == 'distributedtrainingjobs.training.dtj.dev "none" not found\n'
    assert world.jobs() == []


@pytest.mark.parametrize("command", ["list", "wait digits", "suspend digits", "delete digits", "submit -"])
def test_a_missing_right_is_one_line_in_the_servers_words(command: str, world: JobWorld, dtj: CommandLine) -> None:
    nobody = replace(dtj, kubeconfig=world.plane.kubeconfig_for("nobody"))
    done = nobody.run(*command.split(), stdin=yaml.safe_dump(manifest()))
    assert (done.returncode, done.stdout) == (4, "")
    assert 'is forbidden: User "nobody" cannot ' in done.stderr
    assert done.stderr.count("\n") == 1


# -- list -------------------------------------------------------------------------------------------------------


def test_a_list_comes_as_a_table_of_the_jobs_with_these_labels(world: JobWorld, dtj: CommandLine) -> None:
    assert dtj.run("list").stderr == f"No jobs in namespace {world.namespace}.\n"
    dtj.run("submit", write(dtj.folder, manifest("b"), manifest("a")))
    assert [line.split()[0] for line in dtj.run("list").stdout.splitlines()] == ["NAME", "a", "b"]
    assert dtj.run("list", "-o", "wide").stdout.splitlines()[0].split()[-2:] == ["REASON", "ATTEMPT"]
    assert dtj.run("list", "-l", "team=none").stderr == f"No jobs in namespace {world.namespace}.\n"
