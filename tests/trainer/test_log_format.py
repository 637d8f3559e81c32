"""The log of a training: as JSON lines and above a level. Its plain form is what the other tests read."""

import json
from pathlib import Path

from trainer.cluster import ran

SHORT = ("--task=tabular-classification", "--epochs=1")


def test_every_line_of_a_training_is_a_json_object_with_task_level_and_logger(folder: Path) -> None:
    job = ran(folder, arguments=SHORT, environ={"DTJ_LOG_FORMAT": "json"})
    lines = [json.loads(line) for line in job["worker-0"].log.splitlines()]
    assert {(line["job"], line["task"], line["level"]) for line in lines} == {(folder.name, "worker 0", "info")}
    assert all(line["logger"].startswith("dtj_trainer.") for line in lines)
    progress = [line["progress"] for line in lines if "progress" in line][-1]
    assert progress["step"] == progress["totalSteps"]
    assert progress["metrics"].keys() == {"loss", "accuracy"}
    assert any(line["message"].startswith("done: ") for line in lines)


def test_a_training_above_level_error_is_silent_if_all_goes_well(folder: Path) -> None:
    arguments = [*SHORT, "--log-level=error"]
    job = ran(folder, arguments=arguments)
    assert job["worker-0"].log == ""


def test_the_end_of_a_training_that_fails_is_one_json_line_with_the_traceback(folder: Path) -> None:
    text = "raise ValueError('no such column')\n"
    job = ran(folder, script=text, arguments=["--log-format=json"], code=1)
    end = json.loads(job["worker-0"].log.splitlines()[-1])
    assert (end["level"], end["message"]) == ("error", "train.py:1: ValueError: no such column")
    assert end["exception"].startswith("Traceback (most recent call last):\n")
    assert job["worker-0"].last_words == "train.py:1: ValueError: no such column"
