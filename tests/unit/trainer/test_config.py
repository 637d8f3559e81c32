"""The trainer's command line and environment, without TensorFlow."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dtj_trainer.config.cluster import Address, Task
from dtj_trainer.config.nonfinite import workers_of
from dtj_trainer.config.outputs import InMemory
from dtj_trainer.config.parsing import Config, parse
from dtj_trainer.config.script import Script
from dtj_trainer.errors import UsageError
from dtj_trainer.process import tpu_environment
from support.bad_arguments import refusal


def tf_config(role: str = "worker", index: int = 0, **cluster: object) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


TWO: dict[str, Any] = {"worker": ["a:2222", "b:2222"]}
SERVERS: dict[str, Any] = {"chief": ["c:2222"], "worker": ["a:2222"], "ps": ["p:2222"]}


def configured(*argv: str, **environ: str) -> Config:
    return parse(argv, environ)


def test_nothing_at_all_trains_the_digits_on_one_device_into_dtj_output() -> None:
    config = configured()
    assert (config.strategy, config.task, config.dataset) == ("OneDevice", "image-classification", "digits")
    assert config.batch_size.over(4) == 64
    assert config.checkpoint.directory == Path("dtj-output/checkpoints")
    assert config.export_dir == Path("dtj-output/export")
    assert config.log_dir == Path("dtj-output/logs")
    assert config.cluster.leads
    assert config.status_port is None


def test_a_job_writes_only_where_its_manifest_says() -> None:
    config = configured(DTJ_JOB_NAME="digits")
    assert config.checkpoint.directory is config.export_dir is config.log_dir is None


def test_a_model_is_exported_as_a_saved_model_unless_more_is_asked_for() -> None:
    assert configured().export_formats == ("SavedModel",)
    assert configured("--export-formats=TFLite, SavedModel,TFLite").export_formats == ("SavedModel", "TFLite")
    job = {"DTJ_JOB_NAME": "digits", "DTJ_EXPORT_DIR": "/e", "DTJ_EXPORT_FORMATS": "TFLite,SavedModel"}
    assert configured(**job).export_formats == ("SavedModel", "TFLite")


def test_a_flag_wins_over_its_variable_and_an_empty_variable_is_none() -> None:
    environ = {"DTJ_STRATEGY": "Mirrored", "DTJ_CHECKPOINT_DIR": "/a", "DTJ_CHECKPOINT_EVERY_STEPS": ""}
    config = configured("--strategy=OneDevice", "--checkpoint-dir", "/b", **environ)
    assert config.strategy == "OneDevice"
    assert config.checkpoint.directory == Path("/b")
    assert config.checkpoint.every_steps is None


def test_every_variable_of_the_operator_is_read() -> None:
    config = configured(
        TF_CONFIG=tf_config("worker", 1, **TWO),
        DTJ_JOB_NAME="digits",
        DTJ_NAMESPACE="team",
        DTJ_STRATEGY="MultiWorkerMirrored",
        DTJ_ROLE="worker",
        DTJ_INDEX="1",
        DTJ_ATTEMPT="3",
        DTJ_CHECKPOINT_DIR="/c",
        DTJ_CHECKPOINT_EVERY_STEPS="40",
        DTJ_CHECKPOINT_EVERY_SECONDS="2.5",
        DTJ_CHECKPOINT_KEEP="7",
        DTJ_CHECKPOINT_MEMORY_DIR="/m",
        DTJ_CHECKPOINT_MEMORY_EVERY_STEPS="25",
        DTJ_EXPORT_DIR="/e",
        DTJ_LOG_DIR="/l",
        DTJ_STATUS_PORT="8470",
    )
    assert (config.job, config.attempt, config.status_port) == ("digits", 3, 8470)
    assert config.cluster.task == Task("worker", 1)
    assert config.cluster.own_address == Address("b", 2222)
    assert config.cluster.peers("chief", "worker") == {Task("worker", 0): Address("a", 2222)}
    assert not config.cluster.leads
    policy = config.checkpoint
    assert (policy.every_steps, policy.every_seconds, policy.keep) == (40, 2.5, 7)
    assert (policy.directory, config.export_dir, config.log_dir) == (Path("/c"), Path("/e"), Path("/l"))
    assert policy.memory == InMemory(directory=Path("/m"), every_steps=25)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("", 30),
        ("--checkpoint-every-seconds=5", 5),
        ("--checkpoint-every-steps=10", None),
        ("--checkpoint-every-seconds=auto", 30),
        ("--checkpoint-every-seconds=auto --checkpoint-every-steps=10", 30),
    ],
)
def test_a_checkpoint_is_due_by_time_unless_only_steps_are_given(given: str, seconds: float | None) -> None:
    assert configured(*given.split()).checkpoint.every_seconds == seconds


def test_with_auto_the_trainer_chooses_the_time_between_checkpoints_by_the_losses_that_the_operator_knows() -> None:
    told = {"DTJ_CHECKPOINT_EVERY_SECONDS": "auto", "DTJ_SECONDS_BETWEEN_LOSSES": "50400"}
    known, unknown = configured(**told).checkpoint, configured("--checkpoint-every-seconds=auto").checkpoint
    assert (known.chooses_seconds, known.seconds_between_losses) == (True, 50400)
    assert (unknown.chooses_seconds, unknown.seconds_between_losses) == (True, math.inf)
    assert not configured("--checkpoint-every-seconds=5").checkpoint.chooses_seconds
    for given in ("--checkpoint-every-seconds=often", "DTJ_CHECKPOINT_EVERY_SECONDS=Auto"):
        assert refusal(given) == ": give a number above 0, or auto"
    assert refusal("DTJ_SECONDS_BETWEEN_LOSSES=0") == ": give seconds above 0, or unset it"


def test_without_a_number_of_steps_the_trainer_chooses_how_often_it_copies_to_memory() -> None:
    environ = {"TF_CONFIG": tf_config(**TWO), "DTJ_CHECKPOINT_MEMORY_DIR": "/m"}
    memory = configured("--strategy=MultiWorkerMirrored", **environ).checkpoint.memory
    assert memory == InMemory(directory=Path("/m"), every_steps=None)


def test_the_chief_leads_where_there_is_one_and_who_is_alone_and_the_evaluator_never() -> None:
    strategy = {"DTJ_STRATEGY": "MultiWorkerMirrored", "DTJ_CHECKPOINT_DIR": "/c"}
    cluster: dict[str, Any] = {"chief": ["c:1"], "worker": ["a:1"]}
    assert configured(TF_CONFIG=tf_config("chief", **cluster), **strategy).cluster.leads
    assert not configured(TF_CONFIG=tf_config("worker", **cluster), **strategy).cluster.leads
    evaluator = configured(TF_CONFIG=tf_config("evaluator", **cluster), **strategy).cluster
    assert not evaluator.leads
    assert evaluator.own_address is None
    assert configured(TF_CONFIG='{"cluster": {}, "task": {"type": "chief", "index": 0}}').cluster.leads


def test_a_batch_size_is_global_or_per_replica() -> None:
    assert configured("--per-replica-batch-size=16").batch_size.over(3) == 48
    assert configured("--batch-size=16").batch_size.over(3) == 16
    with pytest.raises(UsageError, match=r"--batch-size=2: less than one example for each of 3 replicas"):
        configured("--batch-size=2").batch_size.over(3)


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("--epochs=0", ": give a whole number of at least 1"),
        ("--epochs=none", ": give a whole number of at least 1"),
        ("--learning-rate=nan", ": give a number above 0"),
        ("--epoch=5", "unrecognized arguments: --epoch; see --help"),
        ("--token hidden --key=hidden", "unrecognized arguments: --token --key; see --help"),
        ("--epochs", "argument --epochs: expected one argument; see --help"),
        ("train", "unrecognized arguments: train; see --help"),
        *(
            (f"{flag}=", ": empty; give a value, or leave the option out")
            for flag in ("--data-dir", "--checkpoint-dir", "--export-dir", "--log-dir", "--store-cache", "--loss")
        ),
        ("--data-dir=d --held-out=", ": empty; give a value, or leave the option out"),
        ("--data-dir=d --label-column=", ": empty; give a value, or leave the option out"),
        ("--script=a.py --export-dir=", ": empty; give a value, or leave the option out"),
        ("--actions=mine", ": give package.module:function"),
        (
            "DTJ_STRATEGY=Multi",
            ": no such strategy; this trainer knows OneDevice, Mirrored, CentralStorage, MultiWorkerMirrored, "
            "ParameterServer, TPU, Pipeline",
        ),
        ("--task=poetry", ": no such task; this trainer knows image-classification, text-classif"),
        ("--dataset=letters", ": no data set of task image-classification; this trainer knows"),
        ("DTJ_JOB_NAME=digits --export-formats=TFLite", ": no directory to export to; give --export-dir"),
        ("--export-formats=SavedModel,ONNX", ": 'ONNX' is not a model format; this trainer knows SavedModel, TFLite, "),
        (
            "--export-formats=savedmodel",
            ": 'savedmodel' is not a model format; this trainer knows SavedModel, TFLite, ",
        ),
        ("--export-formats=SavedModel,", ": '' is not a model format; this trainer knows SavedModel, TFLite, "),
        (
            "DTJ_EXPORT_FORMATS=SavedModel,TensorFlowJS",
            ": TensorFlowJS needs the package tensorflowjs, which is not installed here; build the trainer's image "
            "with --build-arg TFJS=1, or leave the format out (docs/export.md)",
        ),
        (
            "--batch-size=8 --per-replica-batch-size=4",
            "--batch-size=8 and --per-replica-batch-size=4: give one of the two",
        ),
        (
            "DTJ_CHECKPOINT_MEMORY_DIR=/m",
            ": strategy OneDevice keeps no checkpoints in memory; use MultiWorkerMirrored",
        ),
        ("DTJ_ATTEMPT=two", ": not a whole number"),
        ("DTJ_ATTEMPT=²", ": not a whole number"),
        ("DTJ_STORE_RETRY_SECONDS=0", ": give a number above 0"),
        ("DTJ_STORE_RETRY_SECONDS=nan", ": give a number above 0"),
        ("DTJ_STATUS_PORT=http", ": give a port from 1 to 65535, or unset it"),
        ("DTJ_STATUS_PORT=²", ": give a port from 1 to 65535, or unset it"),
        ("TF_CONFIG={", ": not JSON"),  # and what else unit/launch/test_tf_config.py refuses
        ("--strategy=MultiWorkerMirrored", "strategy MultiWorkerMirrored: TF_CONFIG lists no worker"),
        ("DTJ_STRATEGY=Pipeline", "strategy Pipeline: TF_CONFIG lists no worker; list one for each stage"),
        (
            "--communication=nccl",
            ": strategy OneDevice adds up no gradients of several GPUs; leave it out, or use Multi",
        ),
        ("DTJ_COMMUNICATION=fast", ": no such way; this trainer knows auto, nccl, ring"),
        ("--stages=a,,b", ": strategy OneDevice has no stages; leave it out, or use Pipeline"),
        *(
            (f"--strategy=TPU TPU_NAME={name}", ": give local, for the chips of this host, or grpc://host:port")
            for name in ("my-tpu", "grpc://a", "http://a:1", "grpc://a:1,local", "grpc://:1")
        ),
        ("DTJ_ROLE=evaluator DTJ_JOB_NAME=j", "evaluator: there is no checkpoint directory to watch"),
        ("--script=train.py DTJ_ON_NAN=skip", ": --script and sessions can only stop; use --on-nan=fail"),
        ("--validate-every=2days", ": give a number of steps, such as 500, or of epochs, such as epoch or 2epochs"),
        ("--validate-every=0epochs", ": give a number of steps, such as 500, or of epochs, such as epoch or 2epochs"),
        ("--keep-best=val_loss", ": nothing validates during the training; give --validate-every"),
        (
            "DTJ_JOB_NAME=digits --validate-every=5 --keep-best=val_loss",
            ": there is no directory for the best step; give --checkpoint-dir",
        ),
        (
            "--validate-every=5 --keep-best=accuracy",
            ": give a metric of the held-out examples, such as val_loss or val_accuracy",
        ),
        (
            "--validate-every=5 --keep-best=val_bleu",
            ": give val_bleu:min if a small value is good, val_bleu:max if a large one is",
        ),
        *(
            (f"--validate-every=5 --keep-best={name}", f": give {name}:min if a small value is good, {name}:max if a")
            for name in ("val_inaccuracy", "val_dissimilarity", "val_accident_rate", "val_lossless_share")
        ),
    ],
)
def test_what_cannot_be_is_one_line_that_names_source_value_and_remedy(given: str, printed: str) -> None:
    assert refusal(given).startswith(printed)


IN_TWO = tf_config(**TWO)
CHIEF, SERVER = tf_config("chief", **SERVERS), tf_config("ps", **SERVERS)


@pytest.mark.parametrize(
    ("config", "given", "printed"),
    [
        (tf_config("driver", **TWO), "", "role driver: this trainer knows chief, worker, ps,"),
        *(
            (IN_TWO, f"--strategy={name}", f"strategy {name} {how} one process, but TF_CONFIG lists 2 tasks")
            for name, how in (("OneDevice", "runs in"), ("CentralStorage", "runs in"), ("TPU", "is driven by"))
        ),
        (
            SERVER,
            "--strategy=MultiWorkerMirrored",
            "strategy MultiWorkerMirrored: TF_CONFIG lists ps tasks; use strategy ParameterServer",
        ),
        (
            IN_TWO,
            "--strategy=MultiWorkerMirrored DTJ_CHECKPOINT_MEMORY_DIR=/m DTJ_CHECKPOINT_MEMORY_EVERY_STEPS=0",
            ": give a whole number of at least 1",
        ),
        (
            tf_config(worker=["a:1"], ps=["p:1"]),
            "--strategy=ParameterServer",
            "strategy ParameterServer: TF_CONFIG lists no chief; it needs one chief (the coordinator)",
        ),
        (
            CHIEF,
            "DTJ_STRATEGY=ParameterServer --on-nan=skip",
            ": strategy ParameterServer can only stop; use --on-nan=",
        ),
        (
            CHIEF,
            "DTJ_STRATEGY=ParameterServer --validate-every=epoch",
            ": strategy ParameterServer evaluates only at the end; leave it out, or add an evaluator to the job",
        ),
        (
            tf_config("chief", chief=["c:1"], worker=["a:1"]),
            "--strategy=Pipeline",
            "strategy Pipeline: TF_CONFIG lists 1 worker, which is one stage; list at least 2",
        ),
        (
            SERVER,
            "--strategy=Pipeline",
            "strategy Pipeline: TF_CONFIG lists ps tasks; stages hold their own variables, remove ps",
        ),
        (
            IN_TWO,
            "--strategy=Pipeline --actions=mine:actions",
            ": strategy Pipeline has no whole model to pass to an action; use another strategy, or leave it out",
        ),
        (
            IN_TWO,
            "--strategy=Pipeline --micro-batches=3",
            ": the global batch of 64 examples cannot be cut into 3 equal micro-batches; use --batch-size=66, or",
        ),
        (
            IN_TWO,
            "--strategy=Pipeline --stages=dense,dense_1",
            ": names 2 layer(s), but 2 stages begin with 1 besides the first",
        ),
        (IN_TWO, "--strategy=Pipeline --stages=a,", ": give names with commas between them"),
    ],
    ids=lambda value: value if not value.startswith("{") else "",
)
def test_what_cannot_be_with_a_cluster_is_one_line_too(config: str, given: str, printed: str) -> None:
    assert refusal(given, TF_CONFIG=config).startswith(printed)


def test_the_workers_of_a_pipeline_are_its_stages() -> None:
    workers: dict[str, Any] = {"worker": [f"w{place}:1" for place in range(6)]}
    layout = configured("--micro-batches=8", DTJ_STRATEGY="Pipeline", TF_CONFIG=tf_config(**workers)).pipeline
    assert layout is not None
    assert (layout.stages, layout.micro_batches) == (6, 8)
    assert layout.worker(5) == Task("worker", 5)
    assert configured().pipeline is None


def test_a_tpu_is_this_hosts_unless_runtimes_are_named() -> None:
    assert configured("--strategy=TPU", TF_CONFIG=tf_config(worker=["a:2222"])).tpu_runtimes == {}
    config = configured("--strategy=TPU", TPU_NAME="grpc://a:8470,grpc://[::1]:8471")
    assert config.tpu_runtimes == {"TPU 0": ("a", 8470), "TPU 1": ("::1", 8471)}
    assert configured(TPU_NAME="grpc://a:8470").tpu_runtimes == {}


def test_the_chief_of_a_tpu_drives_the_workers_and_each_worker_serves_it() -> None:
    slice_of_two: dict[str, Any] = {"chief": ["c:2222"], "worker": ["a:2222", "b:2222"]}
    chief = configured("--strategy=TPU", TF_CONFIG=tf_config("chief", **slice_of_two))
    assert chief.tpu_name == "grpc://a:2222,grpc://b:2222"
    assert list(chief.tpu_runtimes.values()) == [("a", 2222), ("b", 2222)]
    assert not chief.hosts_tpu
    assert configured("--strategy=TPU", TF_CONFIG=tf_config("worker", 1, **slice_of_two)).hosts_tpu
    assert not configured("--strategy=TPU", TF_CONFIG=tf_config(worker=["a:2222"])).hosts_tpu


def test_tpu_hosts_find_the_runtime_of_their_chips_and_what_drives_them_loads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libtpu").mkdir()
    for name in ("__init__.py", "libtpu.so"):
        (tmp_path / "libtpu" / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    hosts: dict[str, Any] = {"chief": ["c:2222"], "worker": ["a:2222", "b:2222"]}
    library = str(tmp_path / "libtpu" / "libtpu.so")
    switches = {
        "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": library,
        "TPU_LIBRARY_PATH": library,
    }

    def prepared(*argv: str, **environ: str) -> dict[str, str]:
        before = dict(environ)
        tpu_environment.prepare(configured(*argv, **before), environ)
        return {name: value for name, value in environ.items() if name not in before}

    assert prepared("--strategy=TPU") == switches
    slice_of = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}
    host = prepared("--strategy=TPU", TF_CONFIG=tf_config("worker", 1, **hosts), **slice_of)
    assert host == {**switches, "TPU_HOSTNAME_OVERRIDE": "b"}
    chief = prepared("--strategy=TPU", TF_CONFIG=tf_config("chief", **hosts))
    assert chief == {"TPU_LOAD_LIBRARY": "0", "TPU_NAME": "grpc://a:2222,grpc://b:2222"}
    assert prepared("--strategy=OneDevice") == {}


def test_addresses_of_every_family_are_read_and_written() -> None:
    environ: dict[str, Any] = {"DTJ_STRATEGY": "MultiWorkerMirrored"}
    config = configured(TF_CONFIG=tf_config(worker=["[fd00::1]:2222", "10.0.0.1:1"]), **environ)
    assert [str(address) for address in config.cluster.addresses.values()] == ["[fd00::1]:2222", "10.0.0.1:1"]


def test_the_smallest_numbers_are_taken() -> None:
    config = configured(
        "--epochs=1", "--seed=0", "--steps-per-call=1", "--batch-size=1", "--logical-cpus=1",
        "--checkpoint-every-steps=1", "--checkpoint-keep=1", "--progress-every=0.1",
    )  # fmt: skip
    assert (config.epochs, config.seed, config.steps_per_call, config.logical_cpus) == (1, 0, 1, 1)
    assert (config.batch_size.over(1), config.checkpoint.every_steps, config.checkpoint.keep) == (1, 1, 1)
    assert config.progress_seconds == 0.1


@pytest.mark.parametrize(
    ("given", "strategy", "cluster", "seconds"),
    [
        ("", "OneDevice", {}, 1800),
        ("", "MultiWorkerMirrored", TWO, 1800),
        ("", "Pipeline", TWO, 300),
        ("", "ParameterServer", SERVERS, 300),
        ("--script=train.py", "ParameterServer", SERVERS, 1800),
        ("--stall-timeout=9", "ParameterServer", SERVERS, 9),
    ],
)
def test_a_step_that_other_processes_take_has_a_shorter_limit_unless_one_is_given(
    given: str, strategy: str, cluster: dict[str, Any], seconds: float
) -> None:
    role = next(iter(cluster), "worker")
    config = configured(*given.split(), DTJ_STRATEGY=strategy, TF_CONFIG=tf_config(role, **cluster) if cluster else "")
    assert config.stall_timeout == seconds


def test_data_that_a_service_reads_have_a_shorter_limit_too() -> None:
    assert configured(TF_DATA_SERVICE_ADDRESS="d:5050").stall_timeout == 300


def test_replicas_are_those_of_the_chief_and_then_of_the_workers() -> None:
    cluster: dict[str, Any] = {"chief": ["c:1"], "worker": ["a:1", "b:1"]}
    collective = configured("--strategy=MultiWorkerMirrored", TF_CONFIG=tf_config("chief", **cluster)).cluster
    assert workers_of(collective, [0, 5, 4], total=6) == ["chief 0", "worker 1"]
    servers = configured("--strategy=ParameterServer", TF_CONFIG=tf_config("chief", **SERVERS)).cluster
    assert workers_of(servers, [1], total=2) == ["worker 0"]
    assert workers_of(configured().cluster, [0], total=1) == ()


def test_a_script_gets_its_arguments_and_our_flags_as_variables() -> None:
    argv = ["--script=train.py", "--checkpoint-dir=/ckpt", "--start-timeout=9", "--seed=7", "--", "--epochs", "3"]
    config = configured(*argv, TF_CONFIG=tf_config(**TWO))
    assert config.script == Script(
        name="train.py", arguments=("--epochs", "3"), environ={"DTJ_CHECKPOINT_DIR": "/ckpt"}, seed=7
    )
    assert config.start_timeout == 9.0
    assert config.strategy == "MultiWorkerMirrored"


@pytest.mark.parametrize(
    ("cluster", "strategy"),
    [(SERVERS, "ParameterServer"), (TWO, "MultiWorkerMirrored"), ({"worker": ["a:2222"]}, "OneDevice")],
)
def test_the_strategy_of_a_script_is_what_tf_config_looks_like(cluster: dict[str, Any], strategy: str) -> None:
    assert configured("--script=train.py", TF_CONFIG=tf_config(**cluster)).strategy == strategy


def test_a_plain_run_of_a_script_keeps_nothing_that_it_was_not_asked_to() -> None:
    config = configured("--script=train.py")
    assert (config.checkpoint.directory, config.export_dir, config.log_dir) == (None, None, None)
    assert config.script == Script(name="train.py", seed=None)


@pytest.mark.parametrize(("given", "seed"), [("20261130094500", 20261130094500 % 2**32), (str(2**32 - 1), 2**32 - 1)])
def test_a_seed_may_be_any_number_for_the_loop_of_the_trainer_and_for_a_script(given: str, seed: int) -> None:
    assert configured(f"--seed={given}").seed == seed
    script = configured(f"--seed={given}", "--script=train.py").script
    assert script is not None
    assert script.seed == seed


def seed_of_script(**environ: str) -> int | None:
    script = configured("--script=train.py", "--start-timeout=9", **environ).script
    assert script
    return script.seed


def test_the_seed_of_a_script_stays_with_the_job_and_not_with_its_attempts_or_members() -> None:
    job = {"DTJ_JOB_NAME": "digits", "DTJ_JOB_UID": "uid"}
    of_job = seed_of_script(**job, DTJ_ATTEMPT="1", TF_CONFIG=tf_config(**TWO))
    assert of_job is not None
    for index, addresses in ((1, ["a:2222", "b:2222"]), (0, ["a:2222"]), (2, ["a:1", "b:2", "c:3"])):
        assert seed_of_script(**job, DTJ_ATTEMPT="2", TF_CONFIG=tf_config(index=index, worker=addresses)) == of_job
    assert seed_of_script(**job, TF_CONFIG=tf_config("evaluator"), DTJ_CHECKPOINT_DIR="/c") == of_job
    assert seed_of_script(DTJ_JOB_NAME="digits", DTJ_JOB_UID="another", TF_CONFIG=tf_config(**TWO)) != of_job


def test_the_seed_of_a_script_outside_of_a_cluster_is_that_of_its_tasks() -> None:
    of_two = seed_of_script(TF_CONFIG=tf_config(**TWO))
    assert of_two == seed_of_script(TF_CONFIG=tf_config(index=1, **TWO), DTJ_ATTEMPT="2")
    assert of_two != seed_of_script(TF_CONFIG=tf_config(worker=["c:2222", "d:2222"]))
    assert seed_of_script(DTJ_JOB_NAME="digits", TF_CONFIG=tf_config(worker=["a:2222"])) is None


@pytest.mark.parametrize(("name", "is_file"), [("train.py", True), ("a/train", True), ("a.train", False)])
def test_a_script_is_a_file_or_a_module_by_its_name(name: str, is_file: bool) -> None:
    assert (Script(name=name).path is not None) == is_file


def test_a_loss_that_is_not_finite_ends_the_training_unless_more_is_asked_for() -> None:
    assert configured().on_nan == "fail"
    assert configured("--on-nan=skip").on_nan == "skip"


@pytest.mark.parametrize(
    ("text", "steps"), [("500", 500), ("epoch", 30), ("2epochs", 60), ("1epoch", 30)]
)  # fmt: skip
def test_an_interval_is_of_steps_or_of_epochs(text: str, steps: int) -> None:
    every = configured(f"--validate-every={text}").validation.every
    assert every is not None
    assert every.steps(30) == steps


@pytest.mark.parametrize(
    ("text", "metric", "mode"),
    [
        ("val_loss", "val_loss", "min"),
        ("val_accuracy", "val_accuracy", "max"),
        ("val_mean_absolute_error", "val_mean_absolute_error", "min"),
        ("val_auc", "val_auc", "max"),
        ("val_sparse_top_k_categorical_accuracy", "val_sparse_top_k_categorical_accuracy", "max"),
        ("val_acceleration_rmse", "val_acceleration_rmse", "min"),
        ("val_f1_score_2", "val_f1_score_2", "max"),
        ("val_bleu:max", "val_bleu", "max"),
        ("val_accuracy:min", "val_accuracy", "min"),
    ],
)
def test_the_name_of_a_metric_shows_which_value_is_better(text: str, metric: str, mode: str) -> None:
    best = configured("--validate-every=5", f"--keep-best={text}").validation.keep_best
    assert best is not None
    assert (best.metric, best.mode) == (metric, mode)
    assert best.is_better(0.5, None)
    assert best.is_better(0.5, 0.7) == (mode == "min")
    assert not best.is_better(float("nan"), None)
