"""The options of the trainer's input, without TensorFlow."""

import json

import pytest

from dtj_trainer.config.cluster import Task
from dtj_trainer.config.data import ServiceTask
from dtj_trainer.config.parsing import Config, parse
from support.bad_arguments import refusal

SERVICE = "job-dispatcher-0.job:2222"
FILES = "--data-dir=/data"


def test_a_shipped_data_set_needs_none_of_them() -> None:
    data = parse([], {}).data
    assert data.where is None
    assert data.service is None
    assert data.cache == "auto"


def test_files_are_described_by_options() -> None:
    config = parse(
        [
            "--data-dir=gs://bucket/part-*", "--data-format=tfrecord", "--held-out=/judge", "--label-column=y",
            "--columns=a, b,a", "--image-size=32x48", "--cache=memory",
        ],
        {},
    )  # fmt: skip
    data = config.data
    assert (data.where, data.format, data.validation, data.label) == ("gs://bucket/part-*", "tfrecord", "/judge", "y")
    assert data.columns == ("a", "b")
    assert (data.image_size, data.cache) == ((32, 48), "memory")


def test_held_out_is_a_share_or_a_place() -> None:
    assert parse([FILES, "--held-out=0.25"], {}).data.validation == 0.25
    assert parse([FILES, "--held-out=judge/*.csv"], {}).data.validation == "judge/*.csv"


def test_a_worker_reads_from_the_service_of_its_job_and_is_no_part_of_it() -> None:
    config = parse([], {"TF_DATA_SERVICE_ADDRESS": SERVICE})
    assert config.data.service == SERVICE
    assert config.service_task is None


def outsider(role: str, **environ: str) -> Config:
    cluster = {"worker": ["a:2222", "b:2222"]}
    config = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
    return parse([], {"TF_CONFIG": config, "DTJ_STRATEGY": "MultiWorkerMirrored", "DTJ_ROLE": role, **environ})


def test_a_dispatcher_listens_where_all_tasks_look_for_it() -> None:
    config = outsider("dispatcher", TF_DATA_SERVICE_ADDRESS="d:2400")
    assert config.cluster.task == Task("dispatcher", 0)
    assert config.service_task is not None
    assert config.service_task.port == 2400
    assert not config.cluster.leads


def test_a_data_worker_says_where_it_is_reached() -> None:
    environ = {"TF_DATA_SERVICE_ADDRESS": "d:2400", "DTJ_HOST": "job-data-worker-0.job"}
    config = outsider("data-worker", **environ)
    assert config.service_task == ServiceTask(dispatcher="d:2400", host="job-data-worker-0.job", port=2222)
    config = outsider("data-worker", **environ, DTJ_DATA_SERVICE_PORT="2300")
    assert config.service_task is not None
    assert config.service_task.port == 2300


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("--data-dir=/data --dataset=digits", "--data-dir=/data and --dataset=digits: give one of the two"),
        ("--data-format=csv", ": it is about your own files; give --data-dir too, or leave it"),
        ("--cache=none", ": it is about your own files"),
        ("--data-dir=/data --data-format=xml", ": no such format; this trainer knows tfrecord"),
        ("--data-dir=/data --held-out=0.8", ": give a share above 0 and at most 0.5, or the path"),
        ("--data-dir=/data --held-out=0", ": give a share above 0"),
        ("--data-dir=/data/**/*.csv", ": ** would be one directory, as * is; give the directory, of which all"),
        ("--data-dir=/data --held-out=s3://bucket/**", ": ** would be one directory, as * is"),
        ("--data-dir=/data --image-size=32", ": give HEIGHTxWIDTH in pixels"),
        ("--data-dir=/data --columns=a,,b", ": give names with commas between them"),
        ("--data-dir=/data --cache=/scratch", ": give auto, memory or none; to keep decoded examples"),
        ("TF_DATA_SERVICE_ADDRESS=here", ": not host:port"),
        ("DTJ_ROLE=dispatcher", "dispatcher: TF_DATA_SERVICE_ADDRESS is not set; give the"),
        (
            "DTJ_ROLE=data-worker TF_DATA_SERVICE_ADDRESS=job-dispatcher-0.job:2222 DTJ_DATA_SERVICE_PORT=x",
            ": give a port from 1 to 65535",
        ),
    ],
)
def test_what_cannot_be_is_one_line_that_names_source_value_and_remedy(given: str, printed: str) -> None:
    assert refusal(given).startswith(printed)
