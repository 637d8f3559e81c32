"""What a person sees of a run: tables, lines and the last words, as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from builders import manifest
from dtj.api.spec import Role
from dtj.api.status import ConditionStatus, ExportedModel, JobStatus, Progress, RootCause
from dtj.cli.common.formatting import counted, listed, short_number, short_time
from dtj.cli.run.live import change_lines, run_table, training_line, warning_lines
from dtj.cli.run.summary import RunPlace, end_lines, fitted
from dtj.client.manifest_files import Document
from dtj.core.hints import hint
from dtj.core.replicas import Replica
from dtj.local.run_directory import RunDirectory
from dtj.local.runner import End, FinishedRun, Result
from dtj.local.view import ReplicaView, RunView
from support.screens import seen

TRAINING = Progress(
    phase="Training",
    step=120,
    total_steps=225,
    eta_seconds=62,
    examples_per_second=2543,
    metrics={"loss": "0.1543", "accuracy": "0.951"},
)


def view(*states: str, progress: Progress | None = None, state: str = "Running") -> RunView:
    replicas = tuple(
        ReplicaView(replica=Replica(Role.WORKER, index), state=end_text, progress=progress or Progress())
        for index, end_text in enumerate(states)
    )
    return RunView(job="digits", strategy="MultiWorkerMirrored", state=state, elapsed=14.2, replicas=replicas)


def test_the_table_at_80_columns() -> None:
    assert seen(run_table(view("Training", "Failed (3)", progress=TRAINING), width=80), width=80) == (
        "digits  Running  14s  MultiWorkerMirrored\n"
        "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━\n"
        "Replica      State                  Step       Loss  Examples/s     ETA\n"
        "worker-0     Training      120/225 (53%)     0.1543        2.5k   1m02s\n"
        "worker-1     Failed (3)    120/225 (53%)     0.1543        2.5k"
    )


def test_the_table_at_40_columns_keeps_what_matters_most() -> None:
    assert seen(run_table(view("Training", "Starting", progress=TRAINING), width=40), width=40) == (
        "digits  Running  14s  MultiWorkerMirror…\n"
        "━━━━━━━━━━━━━━━━━━━━━\n"
        "Replica   State              Step\n"
        "worker-0  Training  120/225 (53%)\n"
        "worker-1  Starting  120/225 (53%)"
    )


def test_the_table_before_anything_is_known() -> None:
    assert seen(run_table(view("Starting"), width=80), width=80) == (
        "digits  Running  14s  MultiWorkerMirrored\n"
        "Replica      State                  Step       Loss  Examples/s     ETA\n"
        "worker-0     Starting"
    )


@pytest.mark.parametrize("width", range(10, 120, 7))
def test_no_line_of_the_table_is_wider_than_the_terminal(width: int) -> None:
    lines = seen(run_table(view("Training", progress=TRAINING), width=width), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert len(lines) == 4, "and none is wrapped"


def test_a_change_is_one_line_for_all_replicas_that_came_to_the_same_state() -> None:
    before, after = view("Starting", "Starting", "Starting"), view("Training", "Failed (1)", "Training")
    assert [*change_lines(before, after)] == ["   14s  worker-0, worker-2: Training", "   14s  worker-1: Failed (1)"]


def test_nothing_is_reported_of_replicas_that_only_wait_or_did_not_change() -> None:
    assert [*change_lines(None, view("Pending"))] == []
    assert [*change_lines(view("Training"), view("Training", progress=TRAINING))] == []


def test_a_warning_is_shown_once_and_when_it_comes() -> None:
    alone = Progress(warning="train.py trains alone")
    before, after = view("Training", "Training"), view("Training", "Training", progress=alone)
    (line,) = warning_lines(before, after)
    assert line.endswith("  warning: train.py trains alone")
    assert [*warning_lines(after, after)] == []


def test_progress_is_one_line_of_the_first_replica_that_trains() -> None:
    assert training_line(view("Starting", progress=Progress())) is None
    assert training_line(view("Training", progress=TRAINING)) == (
        "step 120/225 (53%)  2.5k examples/s  ETA 1m02s  loss 0.1543  accuracy 0.951"
    )


def test_more_steps_than_were_announced_are_all_of_them() -> None:
    longer = TRAINING.model_copy(update={"step": 230})
    assert str(training_line(view("Training", progress=longer))).startswith("step 230/225 (100%)  ")


def test_steps_without_a_total_are_shown() -> None:
    open_ended = TRAINING.model_copy(update={"total_steps": None, "eta_seconds": None})
    assert training_line(view("Training", progress=open_ended)) == (
        "step 120  2.5k examples/s  loss 0.1543  accuracy 0.951"
    )


def test_no_progress_is_reported_once_the_first_replica_is_past_its_steps() -> None:
    assert training_line(view("Evaluating", "Training", progress=TRAINING)) is None


# -- last words -----------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> RunPlace:
    directory = RunDirectory(tmp_path / "runs" / "digits" / "1")
    directory.checkpoint.mkdir(parents=True)
    (directory.checkpoint / "ckpt-225.index").touch()
    document = Document(path="my digits.yaml", number=1, alone=True, body=manifest(), file="my digits.yaml")
    return RunPlace(document=document, directory=directory, base=tmp_path)


def ended(end: End, *, status: JobStatus | None = None, result: Result | None = None) -> FinishedRun:
    return FinishedRun(end, status or JobStatus(), view("Succeeded", state=end.value), result)


def end_text(what: FinishedRun, place: RunPlace) -> str:
    return "\n".join(line.plain for line in end_lines(what, place))


def test_success_says_what_came_out_where_it_is_and_what_to_type_next(place: RunPlace) -> None:
    result = Result(
        accuracy=0.98333,
        loss=0.0556,
        steps=225,
        examples_per_second=2543,
        duration_seconds=7.1,
    )
    exported = ExportedModel(path=str(place.directory.export / "1"), formats=("SavedModel", "TFLite"), size=1_902_069)
    assert end_text(ended(End.SUCCEEDED, status=JobStatus(export=exported), result=result), place) == (
        "digits succeeded after 14s\n"
        "  accuracy     98.33 % on held-out examples  (loss 0.0556)\n"
        "  speed        2.5k examples/s on average  (225 steps; 7s with compilation and checkpoints)\n"
        "  model        runs/digits/1/export/1  (SavedModel, TFLite; 1.9M bytes)\n"
        "  checkpoints  runs/digits/1/checkpoint\n"
        "  logs         runs/digits/1/logs\n"
        "Next\n"
        "  dtj report --run runs/digits/1      # show everything on one page\n"
        "  tensorboard --logdir=runs/digits/1  # show the curves\n"
        "  dtj run 'my digits.yaml'            # run it again\n"
        "  kubectl apply -f 'my digits.yaml'   # run it on a cluster"
    )


def test_a_narrow_terminal_gets_values_wrapped_between_words_and_commands_whole(place: RunPlace) -> None:
    result = Result(steps=225, first_step=64, examples_per_second=2543.4, duration_seconds=4.0)
    exported = ExportedModel(path=str(place.directory.export / "1"), formats=("SavedModel", "TFLite"), size=1_902_069)
    lines = end_lines(ended(End.SUCCEEDED, status=JobStatus(export=exported), result=result), place, width=60)
    assert "\n".join(part.plain for line in lines for part in fitted(line, width=60)) == (
        "digits succeeded after 14s\n"
        "  speed        2.5k examples/s on average  (225 steps,\n"
        "               resumed at step 64; 4s with compilation and\n"
        "               checkpoints)\n"
        "  model        runs/digits/1/export/1  (SavedModel, TFLite;\n"
        "               1.9M bytes)\n"
        "  checkpoints  runs/digits/1/checkpoint\n"
        "  logs         runs/digits/1/logs\n"
        "Next\n"
        "  # show everything on one page\n"
        "  dtj report --run runs/digits/1\n"
        "  # show the curves\n"
        "  tensorboard --logdir=runs/digits/1\n"
        "  # run it again\n"
        "  dtj run 'my digits.yaml'\n"
        "  # run it on a cluster\n"
        "  kubectl apply -f 'my digits.yaml'"
    )


def test_the_next_commands_on_the_latest_run_name_its_job_and_fit_into_80_columns(place: RunPlace) -> None:
    run = RunDirectory(place.base / "dtj-runs" / "digits" / "20260102-030405")
    run.checkpoint.mkdir(parents=True)
    (run.path.parent / "latest").symlink_to(run.path.name)
    words = end_text(ended(End.SUCCEEDED), replace(place, directory=run, files=("train.py",)))
    assert words.endswith(
        "Next\n"
        "  dtj report --run digits                      # show everything on one page\n"
        "  tensorboard --logdir=dtj-runs/digits/latest  # show the curves\n"
        "  dtj run 'my digits.yaml'                     # run it again\n"
        "  dtj run --cluster --code . 'my digits.yaml'  # run it on a cluster"
    )
    (run.path.parent / "latest").unlink()
    (run.path.parent / "latest").symlink_to("a-later-one")
    words = end_text(ended(End.SUCCEEDED), replace(place, directory=run))
    assert "  dtj report --run dtj-runs/digits/20260102-030405\n" in words


def test_a_run_that_was_stopped_before_its_first_checkpoint_begins_from_the_start(place: RunPlace) -> None:
    assert "dtj run --resume 'my digits.yaml'  # continue" in end_text(ended(End.STOPPED), place)
    (place.directory.checkpoint / "ckpt-225.index").unlink()
    assert end_text(ended(End.STOPPED), place).endswith(
        "\n  # run it from the start: it has written no checkpoint\n  dtj run 'my digits.yaml'"
    )


def test_what_a_run_leaves_in_an_object_store_is_named_by_its_url(place: RunPlace) -> None:
    (place.directory.checkpoint / "ckpt-225.index").unlink()
    body = manifest(checkpoint={"path": "s3://b/digits"})
    in_store = replace(place, document=replace(place.document, body=body))
    status = JobStatus(export=ExportedModel(path="s3://b/model/1"), progress=Progress(last_checkpoint_step=20))
    lines = end_text(ended(End.SUCCEEDED, status=status), in_store)
    assert "\n  model        s3://b/model/1\n  checkpoints  s3://b/digits\n" in lines
    assert "dtj run --resume 'my digits.yaml'  # continue" in end_text(ended(End.STOPPED, status=status), in_store)
    assert "it has written no checkpoint" in end_text(ended(End.STOPPED), in_store)


def test_a_model_that_predicts_numbers_is_recognized_by_its_error(place: RunPlace) -> None:
    result = msgspec.json.decode(b'{"loss": 2852.0684, "mean_absolute_error": 43.63146}', type=Result)
    lines = end_text(ended(End.SUCCEEDED, result=result), place)
    assert "\n  error        43.63 in the mean on held-out examples  (loss 2852.0684)\n" in lines


def test_failure_names_the_first_replica_that_failed_and_its_last_lines(place: RunPlace) -> None:
    message = "\n".join(f"line {number}" for number in range(20))
    cause = RootCause(role="worker", index=1, exit_code=3, log_tail=message)
    words = end_text(ended(End.FAILED, status=JobStatus(root_cause=cause)), place)
    assert words.startswith(
        "digits failed after 14s\n  cause        worker-1 exited with code 3\n               line 8\n"
    )
    assert "               line 19\n  its log      runs/digits/1/logs/worker-1.log\n" in words
    assert words.endswith("Next\n  dtj report --run runs/digits/1  # show everything on one page")


def test_a_kill_is_shown_with_its_signal_and_the_likely_reason(place: RunPlace) -> None:
    advice = hint(message="", reason="Error", exit_code=137)
    cause = RootCause(role="worker", index=0, exit_code=137, signal=9, hint=advice)
    words = end_text(ended(End.FAILED, status=JobStatus(root_cause=cause)), place)
    assert "worker-0 exited with code 137 (SIGKILL)\n" in words
    assert "most often because memory ran out" in words


def test_what_the_logs_warn_of_stands_below_how_the_run_ended(place: RunPlace) -> None:
    lines = end_lines(ended(End.SUCCEEDED), place, warnings=["train.py trains alone"])
    assert [line.plain for line in lines][:2] == ["digits succeeded after 14s", "  warning      train.py trains alone"]


def test_what_this_machine_cannot_run_is_reported_as_the_condition_says_it(place: RunPlace) -> None:
    condition = ConditionStatus(type="Invalid", status="True", message="worker: spec.x: no")
    assert end_text(ended(End.INVALID, status=JobStatus(conditions=(condition,))), place) == (
        "my digits.yaml: digits: worker: spec.x: no"
    )


# -- quantities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.5, "0.5"), (7.254, "7.25"), (99.96, "100"), (999.4, "999"), (999.6, "1.0k"), (12_345, "12.3k"),
     (99_960, "100k"), (1_200_000, "1.2M"), (2e9, "2.0G")],
)  # fmt: skip
def test_numbers_are_short(value: float, shown: str) -> None:
    assert short_number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0s"), (9.4, "9s"), (59.6, "1m00s"), (62, "1m02s"), (11_100, "3h05m"), (187_200, "2d04h")],
)
def test_times_are_short(seconds: float, shown: str) -> None:
    assert short_time(seconds) == shown


def test_counts_and_lists_read_like_words() -> None:
    assert [counted(1, "worker"), counted(2, "worker"), counted(2, "ps")] == ["1 worker", "2 workers", "2 ps"]
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
